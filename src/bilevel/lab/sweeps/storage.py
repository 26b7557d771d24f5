"""Where the trials of a sweep are kept: a file, or a server's database."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager

import optuna
from optuna.exceptions import OptunaError, StorageInternalError
from optuna.storages import BaseStorage, RDBStorage
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from bilevel.errors import UserError, quoted

# How a worker waits: for its turn to write, and for a server to answer.
_WAITING = {"sqlite": {"timeout": 60}, "postgresql": {"connect_timeout": 10}}
_TRIES, _PAUSE = 10, 0.5  # seconds
_ADVICE = (
    "Give an address such as sqlite:///sweep.db, in a folder that exists, or "
    "postgresql://USER:PASSWORD@HOST/DATABASE"
)


@contextmanager
def opened(address: str) -> Iterator[BaseStorage]:
    """A storage to work with.

    Raises:
        UserError: it cannot be opened, or did not answer later.
    """
    database = _open(address)
    try:
        yield optuna.storages.get_storage(database)
    except (SQLAlchemyError, StorageInternalError) as error:
        raise UserError(
            f"the storage {shown(address)} failed: {_reason(error)}. Finished trials are kept: run "
            "the same command again to resume"
        ) from error
    finally:
        database.remove_session()
        database.engine.dispose()


def shown(address: str) -> str:
    """An address without its password.

    Example:
        >>> shown("postgresql://ada:secret@host/sweeps")
        'postgresql://ada:***@host/sweeps'
    """
    try:
        return make_url(address).render_as_string(hide_password=True)
    except SQLAlchemyError:
        return address


def _open(address: str) -> RDBStorage:
    try:
        url = make_url(address)
        return _connect(url)
    except ImportError as error:
        package = url.get_driver_name()
        extra = "[binary]" if package == "psycopg" else ""
        raise UserError(
            f'the storage {shown(address)} needs {package}: pip install "{package}{extra}"'
        ) from error
    except (SQLAlchemyError, OptunaError, ValueError) as error:
        raise UserError(
            f"cannot open the storage {quoted(shown(address))}: {_reason(error)}. {_ADVICE}"
        ) from error


def _connect(url: URL) -> RDBStorage:
    waiting = _WAITING.get(url.get_backend_name(), {})
    settings = {"connect_args": waiting, "pool_pre_ping": True}  # a server may have been restarted
    for tries_left in reversed(range(_TRIES)):
        try:
            return RDBStorage(url.render_as_string(hide_password=False), engine_kwargs=settings)
        except SQLAlchemyError as error:
            # Workers that are started together on a new storage all make its tables.
            made_by_another = isinstance(error, IntegrityError) or "already exists" in str(error)
            if not made_by_another or not tries_left:
                raise
            time.sleep(random.uniform(0, _PAUSE))
    raise AssertionError("the last try returns or raises")


def _reason(error: BaseException) -> str:
    """In a line; Optuna's own errors hide what the database said."""
    while isinstance(error, StorageInternalError) and error.__cause__ is not None:
        error = error.__cause__
    return str(error).splitlines()[0]
