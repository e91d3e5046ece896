/**
 * A stream's whole history: how many events there were when, and an attribute's range and mean.
 *
 * The buckets come from the tree's aggregates: any zoom of any length costs the server the same few
 * nodes, never the events.
 */
import { useEffect, useMemo, useState } from "preact/hooks";
import type uPlot from "uplot";
import { address, type StreamInfo } from "../api";
import { Answer } from "../arrow/answer";
import { type Buckets, type Three, withGaps } from "../chart/buckets";
import { type Line, Plot } from "../chart/plot";
import { Loading } from "../ui/loading";
import { count, instantOf, isInteger, spot } from "../ui/numbers";

const BUCKETS = 400;
export const NUMERIC = /^(tinyint|smallint|integer|int|bigint|utinyint|usmallint|uinteger|ubigint|real|float|double|decimal)/i;
const DENSITY: Line[] = [{ label: "events", colour: "series-7", kind: "bars" }];

/** Bounds of a range as the server reads them. */
function bound(value: number, integers: boolean): string {
  return integers ? String(value) : new Date(value).toISOString().replace("Z", "");
}

/** Read the profile route's Arrow answer; buckets without events are gaps in it. */
export async function loadProfile(stream: string, attributes: string[], range: [number, number], integers: boolean, buckets = BUCKETS): Promise<Buckets> {
  const [start, end] = [bound(Math.floor(range[0]), integers), bound(Math.ceil(range[1]), integers)];
  const asked = new URLSearchParams({ start, end, buckets: String(buckets) });
  for (const name of attributes) asked.append("attributes", name);
  const answer = new Answer(`${address("streams", stream, "profile")}?${asked}`, { method: "GET" });
  try {
    const end = await answer.ended;
    if (end.problem) throw new Error(end.problem.detail);
    const heads = answer.columns.value ?? [];
    const { values } = await answer.series(heads.map((_, i) => i), Number.MAX_SAFE_INTEGER);
    const column = (name: string) => Array.from(values[heads.findIndex((head) => head.name === name)] ?? []);
    const gaps = (name: string) => column(name).map((v) => (Number.isFinite(v) ? v : null));
    const envelopes: Buckets["envelopes"] = {};
    for (const name of attributes) {
      envelopes[name] = [gaps(`max_${name}`), gaps(`min_${name}`), gaps(`avg_${name}`)];
    }
    return withGaps({ at: column("start"), counts: column("count"), envelopes }, (range[1] - range[0]) / buckets);
  } finally {
    answer.close();
  }
}

export function Profile({ stream }: { stream: StreamInfo }) {
  const numeric = stream.schema.filter((column) => NUMERIC.test(column.sql_type) && column.name !== stream.time);
  const whole: [number, number] = [instantOf(stream.time_range?.first ?? ""), instantOf(stream.time_range?.last ?? "") + 1];
  const integers = isInteger(stream.schema.find((column) => column.name === stream.time)?.sql_type ?? "");
  const [shown, setShown] = useState<string[]>(() => numeric.slice(0, 2).map((column) => column.name));
  const [range, setRange] = useState<[number, number]>(whole);
  const [found, setFound] = useState<Buckets | null>(null);
  const [problem, setProblem] = useState("");
  const zoomed = range[0] > whole[0] || range[1] < whole[1];
  const key = shown.join("\n");

  useEffect(() => {
    let live = true;
    loadProfile(stream.name, shown, range, integers).then(
      (buckets) => live && (setFound(buckets), setProblem("")),
      (error: Error) => live && setProblem(error.message),
    );
    return () => {
      live = false;
    };
  }, [stream, key, range]);

  const choose = (from: number, to: number) => to - from >= 1 && setRange([from, to]);
  const total = found?.counts.reduce<number>((sum, one) => sum + (one ?? 0), 0) ?? 0;
  const density = useMemo(() => (found ? ([found.at, found.counts] as uPlot.AlignedData) : null), [found]);
  return (
    <section class="profile" aria-label="History">
      <div class="options">
        <h2>History</h2>
        <fieldset>
          <legend class="quiet">Columns</legend>
          {numeric.map((column) => (
            <label key={column.name}>
              <input type="checkbox" checked={shown.includes(column.name)} onChange={() => setShown(shown.includes(column.name) ? shown.filter((one) => one !== column.name) : [...shown, column.name])} /> {column.name}
            </label>
          ))}
        </fieldset>
        <span class="space" />
        <span class="quiet">{spot(range[0], integers, range[1] - range[0])} … {spot(range[1], integers, range[1] - range[0])}{found && ` · ${count(total)} events`}</span>
        <button type="button" disabled={!zoomed} onClick={() => setRange(whole)}>Whole history</button>
      </div>
      {problem && <p class="banner bad" role="alert">{problem}</p>}
      {!found && !problem && <Loading />}
      {found && density && (
        <>
          <Plot label={`Events over time, ${count(total)} in all`} data={density} lines={DENSITY} time={!integers} height={110} legend={false} chosen={choose} />
          {shown.map((name, i) => found.envelopes[name] && <Envelope key={name} name={name} time={!integers} at={found.at} of={found.envelopes[name]} colour={`series-${(i % 6) + 1}`} choose={choose} />)}
          <p class="quiet hint">Drag to zoom. A band reaches from minimum to maximum; its line is the mean.</p>
        </>
      )}
    </section>
  );
}

function Envelope(props: { name: string; time: boolean; at: number[]; of: Three; colour: string; choose: (from: number, to: number) => void }) {
  const { name, at, of, colour, choose } = props;
  const lines = useMemo<Line[]>(
    () => [
      { label: "max", colour, kind: "line", bandWithNext: true },
      { label: "min", colour, kind: "line", bandWithNext: false },
      { label: "avg", colour, kind: "line" },
    ],
    [colour],
  );
  const data = useMemo(() => [at, ...of] as uPlot.AlignedData, [at, of]);
  return (
    <figure class="envelope">
      <figcaption>{name}</figcaption>
      <Plot label={`${name} over time: least, mean and greatest value`} data={data} lines={lines} time={props.time} height={150} legend={false} chosen={choose} />
    </figure>
  );
}
