"""The SQL server: reads the lake over the network, for BI tools and notebooks, with keys and limits.

``service`` knows who may ask what and keeps account; ``flight`` speaks Arrow Flight SQL (clients: ADBC, JDBC,
ODBC), ``http`` a plain endpoint. Every query runs in a process of its own (:mod:`lakehouse.sandbox.client`). There
a tenant's key finds its tenant's files and no others, whatever the SQL says.
"""
