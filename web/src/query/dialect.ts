/** What the server's SQL knows, for completion; asked for once. */
import { getJson, Problem } from "../api";

export interface DialectFunction {
  name: string;
  kind?: string;
  signature?: string;
}

export interface Dialect {
  keywords: string[];
  types: string[];
  functions: DialectFunction[];
}

const CLAUSES = `select from where group by having order limit offset as and or not in is null between
like case when then else end cast distinct with union all join left inner on using asc desc true false
interval timestamp date time partition define pattern measures one row per match all rows after skip
past last next first to within event selection strict skip till any create drop stream index live query
show describe explain analyze insert into values delete alter set nulls over tumble hop session
match_recognize situations asof subset final running classifier match_number`;

export const FALLBACK: Dialect = {
  keywords: CLAUSES.split(/\s+/),
  types: "bigint integer double real varchar boolean timestamp timestamptz date time decimal blob".split(" "),
  functions: "count sum min max avg first last first_value last_value lag lead abs round coalesce date_trunc"
    .split(" ")
    .map((name) => ({ name })),
};

interface Wire {
  keywords?: string[];
  types?: string[];
  functions?: (string | DialectFunction)[] | Record<string, (string | DialectFunction)[]>;
}

let asked: Promise<Dialect> | null = null;

export function dialect(): Promise<Dialect> {
  asked ??= getJson<Wire>("v1/dialect").then(known, (error: unknown) => {
    if (!(error instanceof Problem && error.document.status === 404)) asked = null;
    return FALLBACK;
  });
  return asked;
}

function known(wire: Wire): Dialect {
  const groups: [string, (string | DialectFunction)[]][] = Array.isArray(wire.functions)
    ? [["", wire.functions]]
    : Object.entries(wire.functions ?? {});
  const functions = groups.flatMap(([kind, all]) =>
    all.map((item) => (typeof item === "string" ? { name: item, kind } : { kind, ...item })),
  );
  return {
    keywords: wire.keywords?.length ? wire.keywords : FALLBACK.keywords,
    types: wire.types?.length ? wire.types : FALLBACK.types,
    functions: functions.length ? functions : FALLBACK.functions,
  };
}
