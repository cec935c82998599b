"""Word lists that the practice floor makes people from: given and family names of many origins.

No entry is an everyday English word or a word of the shop. So a full name made of them is in a file only if a task
put it there.
"""

_GIVEN = """
Adaeze Agnieszka Aigerim Aisha Akira Alejandra Alessandro Alistair Amara Amira Ananya Anders
Anneliese Antoinette Arjun Arturo Asante Astrid Ayesha Azadeh Beatriz Benedikt Bianca Bogdan
Branislav Camila Candice Catalina Chiara Chidi Chinonso Cillian Claudia Dagmar Daniela Darius
Deborah Desmond Dimitra Dmitri Dolores Ebony Eduardo Eilidh Ekaterina Elif Emeka Emilia Enrique
Esperanza Esteban Fatima Federica Fernanda Finnian Florian Francesca Gabriela Geoffrey
Gianluca Giorgos Gudrun Guillermo Gustavo Haruka Hassan Heloise Henrik Hiroshi Ibrahim Ignacio
Ikram Ingrid Isabella Ivana Jacqueline Jamal Jelena Jerome Joaquin Johanna Kaito Kamala
Katarzyna Kateryna Keisha Khadija Kwame Lakshmi Lamar Latisha Leila Leonardo Liesbeth Ludmila
Magdalena Malik Marcela Margarita Maria Mateusz Maximilian Mehmet Meera Miguel Mikhail Minh
Monique Nadia Natasha Ngozi Niamh Nikolai Noriko Oksana Olumide Padraig Paloma Pavel Priya
Rafael Rajesh Ramona Renata Rodrigo Rosalind Salma Sanjay Santiago Saoirse Seong Shanelle
Siobhan Soledad Stefania Sunita Svetlana Takeshi Tamara Tariq Thandiwe Theodore Tomasz Ulrike
Valentina Vikram Wanjiru Xiomara Yasmin Yolanda Yusuf Zainab Zdenka Zoltan Amélie Björn Chloë
José Jürgen Łukasz Renée Søren Zoë
"""


_FAMILY = """
Abdullahi Achebe Adebayo Aguilar Ahmadi Alvarez Andersson Antonopoulos Aoki Arslan Banerjee
Barbosa Bergstrom Bhattacharya Bianchi Blaszczyk Boateng Bogdanovic Bouchard Brandt Calderon
Campbell Carvalho Castellano Chaudhry Cisneros Cohen Contreras Cunningham Dabrowski Delgado
Demir Devereaux Diallo Dimitrov Domingo Dubois Eriksson Escobar Esposito Farouk Fernandez
Fitzgerald Fontaine Fujimoto Gallagher Garcia Ghosh Gonzalez Grigoryan Gunawardena Gupta
Gutierrez Hadjiev Hakimi Hansen Haddad Hernandez Hoffmann Horvath Hussein Ibanez Ivanova
Iyer Jankowski Jansen Jimenez Johansson Kaczmarek Kamara Karimi Katz Kavanagh Khan Kimura
Kobayashi Kovalenko Krishnan Kruger Kuznetsova Lefebvre Lindqvist Lombardi Lopez Machado
MacGregor Mahmoud Mandela Marchetti Marinescu Martinez Matsumoto Mbeki McAllister Mendoza
Mensah Mihailov Moreau Morozova Mukherjee Mwangi Nakamura Navarro Ndiaye Nguyen Nikolaidis
Novak Nowak Nwosu Obrien Ochieng Okafor Okonkwo Oliveira Olsen Ortega Osei Ostrowski Owusu
Oyelaran Pacheco Papadopoulos Pashayev Patel Pereira Petrenko Petrov Pillai Popescu Quispe
Rahman Ramirez Rasmussen Reddy Rodriguez Romano Rossi Sanchez Santoro Schneider Sepulveda
Sharma Shevchenko Silveira Singh Sorensen Stavrou Suzuki Svensson Szabo Takahashi Tanaka
Tchaikovsky Tkachenko Torres Tran Ueda Vandenberg Vasquez Villanueva Vogel Volkov Wanjala
Watanabe Weissman Wisniewski Yamamoto Yilmaz Zamora Zhang Zielinski García Müller Núñez
Özdemir Sjöberg
"""


GIVEN: tuple[str, ...] = tuple(_GIVEN.split())
FAMILY: tuple[str, ...] = tuple(_FAMILY.split())
