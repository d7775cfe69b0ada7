"""Runs migrations on the connection that `database.upgrade` gives."""

from alembic import context

attributes = context.config.attributes
context.configure(
    connection=attributes["connection"],
    version_table=attributes["version_table"],
    # SQLite undoes changes of tables, too, since its transactions are begun by hand.
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
