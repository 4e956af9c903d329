"""Placing alone, by the protocol that FGD was published with (ATC'23), on any lists of the openb format.

Tasks arrive one by one on flat columns: no jobs, tenants or time. The live placement uses the same values on the core's
own columns, and tests hold that both choose alike (tests/unit/packing).
"""
