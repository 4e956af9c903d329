"""The order in which waiting jobs are considered. Criteria are composed; age and id always come last."""
