"""Policies: one small file each, behind one registry."""
