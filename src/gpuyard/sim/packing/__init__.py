"""Placement compared by the protocol that FGD was published with (ATC'23), on any lists of the openb format."""
