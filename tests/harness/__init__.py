"""Yards, machines and checkers that tests of several packages share."""
