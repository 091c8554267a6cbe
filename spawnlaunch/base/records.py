"""Records: named tuples that take little time to declare.

`typing.NamedTuple` is used in the same way and behaves in the same way, but it imports `typing`,
and compiles a constructor for each class: a third of a launch's time for imports. Type checkers see
`typing.NamedTuple`.

Annotations are not evaluated here, so a module with records has `from __future__ import
annotations`, and imports names that only annotations use under TYPE_CHECKING.
"""

from operator import itemgetter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:

    class _RecordType(type):
        def __new__(mcls, name, bases, namespace):
            fields = tuple(namespace.get("__annotations__", ()))
            if "__annotate_func__" in namespace:  # Python 3.14
                raise TypeError(f"{name}: its module lacks from __future__ import annotations")
            defaults = {field: namespace[field] for field in fields if field in namespace}
            getters = {field: property(itemgetter(n)) for n, field in enumerate(fields)}
            members = {"__slots__": (), "_fields": fields, "__match_args__": fields}
            members["_field_defaults"] = defaults
            return type.__new__(mcls, name, bases, {**namespace, **getters, **members})

    class NamedTuple(tuple, metaclass=_RecordType):
        """A frozen record of the fields that its class annotates; some may have defaults."""

        def __new__(cls, *args, **kwargs):
            if kwargs or len(args) != len(cls._fields):
                rest = {**cls._field_defaults, **kwargs}
                missing = cls._fields[len(args) :]
                if len(args) > len(cls._fields) or not rest.keys() >= {*missing}:
                    needed = ", ".join(cls._fields)
                    raise TypeError(f"{cls.__name__} has the fields {needed}: {args} {kwargs}")
                if not kwargs.keys() <= {*missing}:
                    unknown = ", ".join(kwargs.keys() - {*missing})
                    raise TypeError(f"{cls.__name__}: twice or no field: {unknown}")
                args += tuple(rest[field] for field in missing)
            return tuple.__new__(cls, args)

        def __getnewargs__(self):
            return tuple(self)

        def __repr__(self):
            fields = ", ".join(f"{field}={value!r}" for field, value in self._asdict().items())
            return f"{type(self).__name__}({fields})"

        def _asdict(self):
            return dict(zip(self._fields, self, strict=True))

        def _replace(self, **kwargs):
            values = tuple(map(kwargs.pop, self._fields, self))
            if kwargs:
                raise TypeError(f"{type(self).__name__}: no field: {', '.join(kwargs)}")
            return tuple.__new__(type(self), values)
