"""Plans: what will run, as far as the text alone decides.

Reading order: ``nodes``, ``pass_through``, ``planner``.
"""
