"""The session store in PostgreSQL, for teams. Nothing else imports psycopg, and it is imported only if it is used."""
