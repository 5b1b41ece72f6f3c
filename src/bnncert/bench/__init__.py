"""The benchmark: instances made by recipe, answers of any tool, scores, and pages about them.

    recipes -> suite (files) -> run (answers, and what the checker says of them) -> scores -> pages

A tool answers an instance by an interval that holds P_safe. Where the truth is known, or a checked
certificate of another tool bounds it, an interval that leaves it out is found out.
"""
