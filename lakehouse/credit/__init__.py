"""Credit assignment as SQL over the views: which decision of an attempt deserves how much of its reward.

``algorithms`` holds one SQL text per algorithm, with the paper it follows; ``compute`` runs one over a
lake for given signal weights and appends the rows to the table ``credits``.
"""
