import { Int64, makeData, TimestampNanosecond, vectorFromArray } from "apache-arrow";
import { describe, expect, it, vi } from "vitest";

vi.hoisted(() => {
  const nothing = () => null;
  vi.stubGlobal("localStorage", { getItem: nothing, setItem: nothing });
  vi.stubGlobal("matchMedia", () => ({ matches: false, addEventListener: nothing }));
  vi.stubGlobal("document", { documentElement: { dataset: {} } });
});
import { clock, decimal, duration, float32, float64, instant, textOf } from "../src/arrow/format";
import { asGroups, asLines, groupingOf, keysOf } from "../src/chart/arrange";
import { runsOf, withGaps } from "../src/chart/buckets";
import { lanesOf, placesOfMarks, situationsOf } from "../src/matches/lanes";
import { isRecent, rowsOfPairs } from "../src/matches/pairs";
import { NOTHING, specOf } from "../src/pages/jobspec";
import { columnsOf, type Look, lookedAt, nameOf, paramsOf, timeFormatOf, WRITTEN } from "../src/pages/looking";
import { type Operator, sentenceOf } from "../src/plan/sentence";
import { columnsOf as columnsOfStream, sampled, samplesOf } from "../src/query/samplesof";
import { troubles } from "../src/pages/troubles";
import { globbed } from "../src/ui/glob";
import { cellText } from "../src/ui/values";
import { quoted } from "../src/query/names";
import { offsetOf, parametersOf, parameterValue, statementAt, statementsOf } from "../src/query/statements";

describe("values keep every digit", () => {
  it("times of any unit", () => {
    expect(instant(1533099600n, 0)).toBe("2018-08-01 05:00:00");
    expect(instant(1533099600123456789n, 3)).toBe("2018-08-01 05:00:00.123456789");
    expect(instant(-1n, 2)).toBe("1969-12-31 23:59:59.999999");
    expect(clock(86_399_999_999n, 2)).toBe("23:59:59.999999");
    expect(duration(-90_061_000n, 1)).toBe("-1 days 01:01:01");
  });
  it("decimals and floats", () => {
    expect(decimal(-5n, 3)).toBe("-0.005");
    expect(decimal(12345678901234567890123456789n, 10)).toBe("1234567890123456789.0123456789");
    expect(float32(Math.fround(0.1))).toBe("0.1");
    expect(float64(38000)).toBe("38000.0");
    expect(float64(NaN)).toBe("nan");
  });
  it("from Arrow's buffers", () => {
    const big = vectorFromArray([9007199254740993n, null], new Int64());
    expect([textOf(big.data[0]!, 0), textOf(big.data[0]!, 1)]).toEqual(["9007199254740993", null]);
    const nanos = makeData({ type: new TimestampNanosecond(), data: BigInt64Array.of(1533099600123456789n) });
    expect(textOf(nanos, 0)).toBe("2018-08-01 05:00:00.123456789");
    const list = vectorFromArray([[1, 2], [3]]);
    expect(textOf(list.data[0]!, 0)).toMatch(/^\[1(\.0)?, 2(\.0)?\]$/);
  });
});

describe("statements", () => {
  const text = "SELECT ';' -- a; b\n FROM x; /* ; */ SELECT \"a;b\" FROM y WHERE z = $low AND '$no' = $low;";
  it("end at semicolons that are no text", () => {
    expect(statementsOf(text).map((piece) => piece.text)).toHaveLength(2);
    expect(statementAt(text, text.indexOf("FROM y"))?.text).toContain('"a;b"');
    expect(statementsOf("-- nothing\n;")).toEqual([]);
  });
  it("name their parameters", () => {
    expect(parametersOf(text)).toEqual(["low"]);
    expect([parameterValue("1.5"), parameterValue("9007199254740993"), parameterValue("'7'"), parameterValue("null")]).toEqual([1.5, "9007199254740993", "7", null]);
    expect(offsetOf("ab\ncdef", 2, 3)).toBe(5);
  });
});

describe("pictures", () => {
  it("no two matches of a lane overlap", () => {
    const spans = [{ first: 0, last: 5 }, { first: 3, last: 8 }, { first: 6, last: 7 }, { first: 9, last: 9 }];
    const { lane, groups } = lanesOf(spans);
    expect(lane).toEqual([0, 1, 0, 0]);
    expect(groups).toHaveLength(2);
  });
  it("gaps for NULL, one line a group", () => {
    expect(asLines(Float64Array.of(2, 1), [Float64Array.of(5, NaN)], ["a"])).toMatchObject({ x: [1, 2], lines: [{ y: [null, 5] }] });
    const [x, y] = [Float64Array.of(1, 1, 2), Float64Array.of(1, 2, 3)];
    expect(asGroups(x, [y], ["v"], ["a", "b", "a"], 1)).toMatchObject({ left: 1, lines: [{ label: "a", y: [1, 3] }] });
    const two = asGroups(x, [y, y], ["v", "w"], ["a", "b", "a"], 2).lines;
    expect(two.map(({ label, group, column }) => [label, group, column])).toEqual([["a · v", 0, 0], ["b · v", 1, 0], ["a · w", 0, 1], ["b · w", 1, 1]]);
  });
  it("lines are by the columns that tell rows of one x apart, and by no more", () => {
    const [x, room, floor, note] = [Float64Array.of(1, 1, 2, 2), ["a", "b", "a", "b"], ["1", "1", "2", "2"], ["p", "q", "r", "s"]];
    expect(groupingOf(x, [note, room, floor])).toEqual([1]);
    expect(groupingOf(x, [floor, room])).toEqual([0, 1]);
    expect(groupingOf(x, [note])).toEqual([]);
    expect(keysOf(room, ["1", null, "2", "2"])).toEqual(["a · 1", "b · NULL", "a · 2", "b · 2"]);
  });
  it("no mark lies on another", () => {
    expect(placesOfMarks([0, 20, 5], 1, 10)).toEqual([0, 0, null]);
    expect(placesOfMarks([0, 5, 20], 2, 10)).toEqual([0, -1, 0]);
    expect(placesOfMarks([3, 0, 6], 3, 10)).toEqual([-1, 0, 1]);
  });
});

describe("a stream's history", () => {
  it("has gaps where buckets have no events", () => {
    const found = { at: [0, 10, 20, 70, 80], counts: [1, 2, 3, 4, 5], envelopes: { v: [[1, 2, 3, 4, 5], [0, 1, 2, 3, 4], [0.5, 1.5, 2.5, 3.5, 4.5]] as [number[], number[], number[]] } };
    const made = withGaps(found, 10);
    expect(made.at).toEqual([0, 10, 20, 30, 70, 80]);
    expect(made.counts).toEqual([1, 2, 3, null, 4, 5]);
    expect(made.envelopes.v?.[0]).toEqual([1, 2, 3, null, 4, 5]);
    expect(runsOf(made.at, made.counts)).toEqual([[0, 1, 2], [4, 5]]);
    expect(withGaps({ at: [0, 500], counts: [1, 1], envelopes: {} }, 10).at).toEqual([0, 20, 500]);
  });
  it("and situations are columns in pairs", () => {
    expect(situationsOf(["k", "low_started", "low_ended", "high_started", "x_ended"])).toEqual(["low"]);
  });
});

describe("pairs", () => {
  it("share the rows that they are made of", () => {
    const at = (from: number, to: number): [string, string] => [String(from), String(to)];
    const found = rowsOfPairs({
      sides: ["l", "a"],
      keys: ["k"],
      pairs: [
        { key: ["x"], times: [at(5, 9), at(1, 2)] },
        { key: ["x"], times: [at(5, 9), at(3, 4)] },
        { key: ["y"], times: [at(5, 9), at(1, 2)] },
        { key: ["y"], times: [at(6, 9), null] },
      ],
      truncated: false,
    });
    expect(found.rows.map((row) => [row.side, row.key, row.first, row.last].join(" "))).toEqual(["l x 5 9", "a x 1 2", "a x 3 4", "l y 5 9", "a y 1 2", "l y 6 9"]);
    expect(found.arrows).toEqual([[1, 0, 0], [2, 0, 1], [4, 3, 2]]);
  });
});

describe("rights", () => {
  it("reach the streams that globs name", () => {
    const reached = (glob: string) => ["a", "ab", "a.b", "a[b", "A", "a-b", "é"].filter((name) => globbed(glob, name));
    expect(reached("*")).toHaveLength(7);
    expect(reached("a?")).toEqual(["ab"]);
    expect(reached("a?b")).toEqual(["a.b", "a[b", "a-b"]);
    expect(reached("a[.-]b")).toEqual(["a.b", "a-b"]);
    expect(reached("a[!.]b")).toEqual(["a[b", "a-b"]);
    expect(reached("a[b")).toEqual(["a[b"]);
    expect(reached("[a-b]")).toEqual(["a"]);
    expect(reached("[z-a]")).toEqual([]);
    expect(reached("?")).toEqual(["a", "A", "é"]);
  });
});

describe("recency joins", () => {
  it("are told from names", () => {
    expect(["a RECENT JOIN b", "a recent last 3\nleft join b", "a RECENT ANTI JOIN b"].map(isRecent)).toEqual([true, true, true]);
    expect(["SELECT recent FROM a JOIN b", "recent AS r JOIN b"].map(isRecent)).toEqual([false, false]);
  });
});

describe("names in SQL", () => {
  it("are quoted where they would be something else", () => {
    expect(["timestamp", "order", "range", "Pumps", 'a"b', "2x"].map(quoted)).toEqual(["timestamp", '"order"', '"range"', '"Pumps"', '"a""b"', '"2x"']);
  });
});

describe("files to import", () => {
  const column = (from: string, more = {}) => ({ from, as: from, type: "", inferred: "bigint", keep: true, ...more });
  const chosen = { file: "a.csv", columns: [column("t"), column("x")], time: "t", timeFormat: "auto", timeZone: "", ambiguous: "refuse", timeOfDay: "", written: WRITTEN, known: null };
  it("are asked for with what was corrected, and no more", () => {
    expect(String(paramsOf(chosen))).toBe("name=a.csv&time=t");
    const columns = [column("t", { as: "at" }), column("x", { type: "double" }), column("y", { keep: false }), column("z", { as: "w", type: "bigint" })];
    const asked = paramsOf({ ...chosen, columns, time: "at", timeFormat: "ms", written: { ...WRITTEN, delimiter: ";", null: "N/A", header: "false" } });
    expect(asked.getAll("rename")).toEqual(["t=at", "z=w"]);
    expect(asked.getAll("types")).toEqual(["x=double"]);
    expect(asked.getAll("select")).toEqual(["x", "w"]);
    expect([asked.get("time"), asked.get("time_format"), asked.get("delimiter"), asked.get("null"), asked.get("header")]).toEqual(["at", "ms", ";", "N/A", "false"]);
    expect(String(paramsOf({ ...chosen, columns, known: "s" }))).toBe("name=a.csv&rename=t%3Dat&rename=z%3Dw&stream=s");
  });
  it("have times by the clocks of a zone, in two columns, in several formats", () => {
    const columns = [column("day"), column("hour"), column("x", { keep: false }), column("y")];
    const asked = paramsOf({ ...chosen, columns, time: "day", timeFormat: "iso | %d.%m.%Y", timeZone: " Europe/Berlin ", ambiguous: "later", timeOfDay: "hour" });
    expect(asked.getAll("time_format")).toEqual(["iso", "%d.%m.%Y"]);
    expect([asked.get("time_zone"), asked.get("ambiguous"), asked.get("time_of_day")]).toEqual(["Europe/Berlin", "later", "hour"]);
    expect(asked.getAll("select")).toEqual(["y"]);
    expect(String(paramsOf({ ...chosen, ambiguous: "later" }))).toBe("name=a.csv&time=t");
  });
  it("begin with what the server proposes", () => {
    const first = { columns: [{ name: "day", sql_type: "timestamp" }], time: "day", time_format: "ms", time_formats: [], time_of_day: "hour" } as unknown as Look;
    expect(columnsOf(first).map((one) => one.from)).toEqual(["day", "hour"]);
    expect(columnsOf({ ...first, time_of_day: "day" })).toHaveLength(1);
    expect([first, { ...first, time_format: "iso" }, { ...first, time_format: null }, { ...first, time_format: ["iso", "s"] }].map(timeFormatOf)).toEqual(["ms", "auto", "auto", "iso | s"]);
    expect(timeFormatOf({ ...first, time_format: null, time_formats: ["%d/%m/%Y", "%m/%d/%Y"] })).toBe("");
  });
  it("are looked at as far as it takes", () => {
    expect(nameOf("My Pumps (2).csv.gz")).toBe("my_pumps_2");
    const size = (name: string) => lookedAt(new File([new Uint8Array(3 << 20)], name)).size;
    expect([size("a.csv"), size("a.parquet"), size("a.ndjson.zst")]).toEqual([1 << 20, 3 << 20, 3 << 20]);
  });
});

describe("jobs", () => {
  it("are asked for what their kind takes, and not before that is there", () => {
    const asked = { ...NOTHING, name: " monday ", stream: "pumps", older: "90 days", sql: "SELECT 1", file: "a.csv", time: "when" };
    expect(specOf("check", asked, false, true)).toEqual({ kind: "check" });
    expect(specOf("backup", asked, false, true)).toEqual({ kind: "backup", name: "monday" });
    expect(specOf("backup", NOTHING, false, true)).toEqual({ kind: "backup" });
    expect(specOf("compact", NOTHING, false, true)).toEqual({ kind: "compact" });
    expect(specOf("compact", NOTHING, false, false)).toBeNull();
    expect(specOf("move", asked, false, false)).toEqual({ kind: "move", streams: ["pumps"], older_than: "90 days" });
    expect(specOf("export", asked, false, true)).toEqual({ kind: "export", file: "a.csv", stream: "pumps" });
    expect(specOf("export", { ...asked, stream: "" }, false, true)).toEqual({ kind: "export", file: "a.csv", sql: "SELECT 1" });
    expect(specOf("export", { ...asked, file: " " }, false, true)).toBeNull();
    expect(specOf("import", { ...asked, time: "" }, false, true)).toEqual({ kind: "import", file: "a.csv", stream: "pumps" });
    expect(specOf("import", { ...asked, time: "" }, true, true)).toBeNull();
    expect(specOf("import", asked, true, true)).toEqual({ kind: "import", file: "a.csv", stream: "pumps", create: true, time: "when" });
  });
});

describe("cells of answers in JSON", () => {
  it("shows lists and structs as JSON, and nothing for what is missing", () => {
    expect([[1, 2], { a: "x" }, 1.5, "x", true, null, undefined].map(cellText)).toEqual(["[1,2]", '{"a":"x"}', "1.5", "x", "true", "", ""]);
  });
});

describe("a plan begins with a sentence", () => {
  const of = (plan: Operator, total_ms?: number) => sentenceOf({ plan, ...(total_ms === undefined ? {} : { total_ms }) }, 0.25);
  const scan = (...found: [string, number][]): Operator => ({ operator: "Scan", regions: { found: found.map(([kind, events]) => [0, 9, kind, events]), unit: "us", cut: false } });
  it("of intervals that indexes have found", () => {
    const replay = { ...scan(["skipped", 19_000_000], ["read", 1_000_000]), indexes: ["S: vibration > 10.2", "H: temperature > 95.0"], replay: "0.4%: 29 intervals of 19 partitions" };
    expect(of({ operator: "MatchRecognize", inputs: [{ ...replay, figures: { intervals: 29, events_replayed: 80_000 } }] }, 12)).toBe("Read 0.4 % of 20 M events: 29 intervals, found by the indexes on vibration and temperature, 12.0 ms.");
    expect(of(replay)).toBe("Read at most 5.0 % of 20 M events: 29 intervals, found by the indexes on vibration and temperature, 250 ms.");
  });
  it("of what was looked up, aggregated, read whole, or not at all", () => {
    expect(of({ ...scan(["skipped", 1998], ["looked_up", 2]), index: ["v > 10"] })).toBe("Read 0.1 % of 2 k events: found by the index on v, 250 ms.");
    expect(of({ ...scan(["skipped", 1000], ["aggregated", 1000]), figures: { events_read: 20 } }, 2)).toBe("Read 1.0 % of 2 k events: stored aggregates answer the query, 2.0 ms.");
    expect(of(scan(["aggregated", 1000]), 2)).toBe("Read none of 1 k events: stored aggregates answer the query, 2.0 ms.");
    expect(of({ ...scan(["read", 2000]), because: "the tree does not keep aggregates by key" }, 2)).toBe("Read all 2 k events: the tree does not keep aggregates by key, 2.0 ms.");
    expect(of({ operator: "Scan", figures: { events_read: 10 } }, 2)).toBe("Read 10 events, 2.0 ms.");
    expect(of({ operator: "Projection" }, 2)).toBe("Read no stored events, 2.0 ms.");
  });
});

describe("samples are of what is stored", () => {
  const column = (name: string, sql_type: string) => ({ name, sql_type, type: "", nullable: true });
  const stream = (name: string, count: number, schema = [column("at", "timestamp"), column("room", "varchar"), column("n", "bigint"), column("order", "double")]) => ({
    name, count, schema, time: "at", version: 1, time_range: { first: "2026-01-01T00:00:00", last: "2026-01-08T00:00:00", first_ticks: 0, last_ticks: 1 },
  });
  it("the largest stream, its text as key, its measure as value", () => {
    expect(sampled([stream("few", 1), stream("many", 9), { ...stream("broken", 99), damage: "gone" }])?.name).toBe("many");
    expect(sampled([{ ...stream("none", 0), time_range: null }])).toBeUndefined();
    expect(columnsOfStream(stream("s", 1)).value?.name).toBe("order");
  });
  it("windows, a pattern where the values are known, the latest events", () => {
    const found = samplesOf(stream("heating", 9), { avg: 20, max: 30 });
    expect(found.map((one) => one.view)).toEqual(["Chart", "Matches", "Table"]);
    expect(found[0]?.sql).toContain('avg("order") AS mean\nFROM TUMBLE(heating, at, INTERVAL \'6\' HOUR)\nGROUP BY room, window_start');
    expect(found[1]?.sql).toContain('DEFINE HIGH AS "order" > 29, BACK AS "order" <= 29');
    expect(samplesOf(stream("heating", 9), null)).toHaveLength(2);
    expect(samplesOf(stream("log", 9, [column("at", "bigint"), column("text", "varchar")]), null).map((one) => one.view)).toEqual(["Table"]);
  });
});

describe("health says what is wrong", () => {
  const found = {
    version: "1", state: "ready", mode: "rw", uptime_s: 1, memory_bytes: 1, disk_free_bytes: 1e12, flight_port: null, postgres_port: null,
    gates: { queries: { running: 8, waiting: 0, limit: 8 } }, store: { streams_damaged: 0 }, trouble: null, every_s: 5, history: {},
  };
  it("nothing, where nothing is", () => expect(troubles(found, [])).toEqual([]));
  it("each thing in a sentence", () => {
    const wrong = { ...found, state: "starting", trouble: "the log cannot be written", disk_free_bytes: 1 << 30, gates: { queries: { running: 8, waiting: 1, limit: 8 } }, store: { streams_damaged: 2, moves_failing_seconds: 90 } };
    const live = [{ name: "low", state: "failed", sql: "", sink: "low", error: "no column v" }];
    expect(troubles(wrong, live)).toEqual([
      "The server is starting.",
      "the log cannot be written",
      "2 streams are damaged and cannot be read: see Streams.",
      "Only 1.0 GiB of the disk is free: a full disk refuses new events.",
      "All 8 slots for queries are in use: 1 waits.",
      "The live query low has failed: no column v.",
      "Segments have not been moved to the object store for 90.00 s.",
    ]);
  });
});
