"""What is derived from the log, table by table: ended jobs, their tries, versions of the configuration, tokens."""
