/** Names as they stand in SQL. */

/** Words that are no names, or not everywhere: reserved ones, those that begin or join what stands in FROM, types before `<`. */
const RESERVED: ReadonlySet<string> = new Set(
  `all alter analyse analyze and anti any array as asc asof asymmetric between both case cast check
collate column constraint create cross cube current_catalog current_date current_time
current_timestamp current_user default deferrable desc describe distinct do drop else end except
false fetch for force foreign from full glob grant group having if ilike in initially inner
insert install intersect into is isnull join lambda lateral leading left like limit list
localtime localtimestamp lock map match_recognize match_situations natural not notnull null
nullable object offset on only or order outer partitioned_by pivot pivot_longer pivot_wider
placing positional primary qualify range references regexp returning revoke right rlike rollback
rollup row select semi session_user show similar some struct summarize symmetric table
tablesample then to trailing true uncache union unique unpivot using values variadic when where
window with xor`.split(/\s+/),
);

/** A name, bare where that is enough, else in double quotes. */
export function quoted(name: string): string {
  return /^[a-z_][a-z0-9_]*$/.test(name) && !RESERVED.has(name) ? name : `"${name.replaceAll('"', '""')}"`;
}
