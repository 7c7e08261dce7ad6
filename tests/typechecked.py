"""The checker behind the import hook: beartype, an int being good enough where a float is asked for."""

from beartype import BeartypeConf, beartype

typechecked = beartype(conf=BeartypeConf(is_pep484_tower=True))
