"""Runs migrations on the connection passed by `database.upgrade`."""

from alembic import context

attributes = context.config.attributes
context.configure(
    connection=attributes["connection"],
    version_table=attributes["version_table"],
    # SQLite rolls back schema changes, too, because its transactions are started explicitly.
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
