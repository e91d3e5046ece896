/** Pairs of a recency join: the rows that they are made of, each once, and who belongs to whom. */

export interface Pairs {
  sides: string[];
  keys: string[];
  pairs: { key: (string | number | boolean | null)[]; times: ([string, string] | null)[] }[];
  truncated: boolean;
}

export interface Row {
  side: string;
  key: string;
  first: string;
  last: string;
}

export function isRecent(sql: string): boolean {
  return /\bRECENT\s+(LAST\s+\S+\s+)?((LEFT|INNER|SEMI|ANTI)\s+(OUTER\s+)?)?JOIN\b/i.test(sql);
}

/** `arrows`: from which row to which, and of which pair. */
export function rowsOfPairs(found: Pairs): { rows: Row[]; arrows: [number, number, number][] } {
  const places = new Map<string, number>();
  const rows: Row[] = [];
  const arrows: [number, number, number][] = [];
  const put = (side: string, key: string, [first, last]: [string, string]): number => {
    const name = [side, key, first, last].join("\n");
    const known = places.get(name) ?? rows.push({ side, key, first, last }) - 1;
    places.set(name, known);
    return known;
  };
  found.pairs.forEach((pair, number) => {
    const key = pair.key.map(String).join(" · ");
    const own = pair.times.map((times, at) => (times ? put(found.sides[at] ?? "", key, times) : -1));
    for (let at = 1; at < own.length; at += 1) {
      const [later, earlier] = [own[at - 1] as number, own[at] as number];
      if (later >= 0 && earlier >= 0) arrows.push([earlier, later, number]);
    }
  });
  return { rows, arrows };
}
