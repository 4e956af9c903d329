"""What hangs on the log, table by table: ended jobs, their tries, versions of the configuration, tokens."""
