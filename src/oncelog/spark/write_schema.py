"""The columns that a DataFrame may have when it is written, checked before anything runs."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    NullType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from oncelog.spark.errors import BadConfiguration
from oncelog.spark.write_plan import WritePlan


class WrongColumns(BadConfiguration):
    """The DataFrame cannot be written; nothing was."""


def check_schema(schema: StructType, plan: WritePlan, keep: Sequence[str] = ()) -> None:
    """Refuse a DataFrame that has no value, or columns and types that a record cannot take."""
    names = schema.fieldNames()
    if "value" not in names:
        raise WrongColumns(f"the DataFrame needs a column `value`; it has {_listed(names)}")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise WrongColumns(f"the DataFrame has more than one column {_listed(twice)}: drop one")
    unknown = [name for name in names if name not in _WANTED and name not in keep]
    if unknown:
        raise WrongColumns(
            f"a record has no place for {_listed(unknown)}: select only {_listed(_WANTED)}, "
            "and put everything else into `value`"
        )
    if missing := [name for name in keep if name not in names]:
        raise WrongColumns(f"the rows are to be kept with {_listed(missing)}, which is not there")
    for field in schema.fields:
        fits, wanted = _WANTED.get(field.name, (_anything, ""))
        if not fits(field.dataType):
            raise WrongColumns(
                f"column `{field.name}` is {field.dataType.simpleString()}; it has to be {wanted}"
            )
    if "topic" not in names and plan.default_topic is None:
        raise WrongColumns("name a topic for the rows, or add a column `topic`")


def _listed(names: Sequence[str] | Mapping[str, object]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"


def _anything(kind: DataType) -> bool:
    return True


def _is_bytes(kind: DataType) -> bool:
    return isinstance(kind, BinaryType | StringType | NullType)


def _is_string(kind: DataType) -> bool:
    return isinstance(kind, StringType | NullType)


def _is_integer(kind: DataType) -> bool:
    return isinstance(kind, ByteType | ShortType | IntegerType | LongType | NullType)


def _is_time(kind: DataType) -> bool:
    return isinstance(kind, TimestampType | LongType | NullType)


def _is_headers(kind: DataType) -> bool:
    if isinstance(kind, NullType):
        return True
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    header = kind.elementType
    return (
        sorted(header.fieldNames()) == ["key", "value"]
        and _is_string(header["key"].dataType)
        and _is_bytes(header["value"].dataType)
    )


_WANTED: Final[Mapping[str, tuple[Callable[[DataType], bool], str]]] = {
    "key": (_is_bytes, "binary or string"),
    "value": (_is_bytes, "binary or string"),
    "headers": (_is_headers, "array<struct<key:string,value:binary>>"),
    "topic": (_is_string, "string"),
    "partition": (_is_integer, "int"),
    "timestamp": (_is_time, "timestamp, or bigint with milliseconds since 1970"),
}
