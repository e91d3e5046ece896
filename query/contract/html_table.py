"""Rows as notebooks show them: an HTML table of text and nothing else."""

from __future__ import annotations

from html import escape

import pyarrow as pa

__all__ = ["html_table"]

_CELL_MAX = 200


def html_table(rows: pa.Table, whole: bool, most: int) -> str:
    """An HTML table; ``whole``: whether these are all rows, else the foot says there are more."""
    head = "".join(
        f"<th>{escape(field.name)}<br><small>{escape(str(field.type))}</small></th>"
        for field in rows.schema
    )
    columns = [column.to_pylist() if _plain(column.type) else list(column) for column in rows]
    body = "".join(
        f"<tr>{''.join(f'<td>{_shown(value)}</td>' for value in row)}</tr>"
        for row in zip(*columns, strict=True)
    )
    foot = f"{rows.num_rows} rows" if whole else f"the first {most} rows; there are more"
    if not whole and not rows.num_rows:
        foot = "the rows were taken"
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><p>{foot}</p>"


def _plain(type_: pa.DataType) -> bool:
    return not pa.types.is_temporal(type_)


def _shown(value: object) -> str:
    if value is None or (isinstance(value, pa.Scalar) and not value.is_valid):
        return "<i>null</i>"
    text = str(value)
    return escape(text if len(text) <= _CELL_MAX else text[:_CELL_MAX] + "...")
