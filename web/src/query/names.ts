/** Names as they stand in SQL. */

/** Words that are no names: reserved ones, and those that begin or join what stands in FROM. */
const RESERVED: ReadonlySet<string> = new Set(
  `all analyse analyze and anti any array as asc asof asymmetric both case cast check collate
column constraint create cross default deferrable desc describe distinct do else end except
false fetch for foreign from full group having ilike in initially inner intersect into is isnull
join lambda lateral leading left like limit natural not notnull null offset on only or order
outer pivot pivot_longer pivot_wider placing positional primary qualify references returning
right select semi show similar some summarize symmetric table then to trailing true union unique
unpivot using variadic when where window with`.split(/\s+/),
);

/** A name, bare where that is enough, else in double quotes. */
export function quoted(name: string): string {
  return /^[a-z_][a-z0-9_]*$/.test(name) && !RESERVED.has(name) ? name : `"${name.replaceAll('"', '""')}"`;
}
