/** A chart of an answer: x is its first time column, like `chronicle sql --plot` has it. */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type uPlot from "uplot";
import type { Answer } from "../arrow/answer";
import type { ColumnHead } from "../arrow/protocol";
import { newTab } from "../query/shelf";
import { save } from "../query/export";
import { quoted } from "../query/names";
import { SERIES } from "../ui/preferences";
import { count } from "../ui/numbers";
import type { Run } from "../query/run";
import { Loading } from "../ui/loading";
import { asGroups, asLines, type Drawn, groupingOf, keysOf } from "./arrange";
import { type Kind, type Line, Plot } from "./plot";

const POINTS_MAX = 400_000;
const KINDS: Kind[] = ["line", "steps", "area", "bars", "points"];
const UNSET = -2;
const DASHES = [undefined, [8, 4], [2, 3], [10, 3, 2, 3]];
const TEXT = /char|string|utf8|enum|uuid|bool|dict/i;
const KEY = /char|string|utf8|enum|uuid|bool|dict|int/i;

export function ChartView({ answer, columns, run }: { answer: Answer; columns: ColumnHead[]; run: Run }) {
  const numeric = columns.flatMap((column, i) => (column.numeric ? [i] : []));
  const firstX = Math.max(0, columns.findIndex((column) => column.time));
  const [x, setX] = useState(firstX);
  const [ys, setYs] = useState<number[]>(() => numeric.filter((i) => i !== firstX).slice(0, 3));
  const [second, setSecond] = useState(UNSET);
  /** Columns by which there are lines; null until the rows have told which. */
  const [keys, setKeys] = useState<number[] | null>(null);
  const [kind, setKind] = useState<Kind>("line");
  const [log, setLog] = useState(false);
  const [range, setRange] = useState<[number, number] | null>(null);
  const [drawn, setDrawn] = useState<Drawn | null>(null);
  const [step, setStep] = useState(1);
  const plot = useRef<uPlot | null>(null);
  const ended = Boolean(answer.end.value);

  useEffect(() => {
    let live = true;
    void (async () => {
      const found = await answer.series([x, ...ys], POINTS_MAX);
      const [xs, ...rest] = found.values as [Float64Array, ...Float64Array[]];
      const textsOf = async (column: number) => {
        const texts = await answer.texts(column, found.step === 1 ? xs.length : answer.rows.value);
        return found.step === 1 ? texts : texts.filter((_, i) => i % found.step === 0);
      };
      if (!keys) {
        if (!ended) return;
        const named = columns.flatMap((column, i) => (TEXT.test(column.type) ? [i] : []));
        const grouping = groupingOf(xs, await Promise.all(named.map(textsOf))).map((k) => named[k] as number);
        if (!live) return;
        setKeys(grouping);
        if (grouping.length) setYs(ys.slice(0, 1));
        return;
      }
      const labels = ys.map((i) => columns[i]?.name ?? "");
      const made = keys.length ? asGroups(xs, rest, labels, keysOf(...(await Promise.all(keys.map(textsOf)))), SERIES.length) : asLines(xs, rest, labels);
      if (!live) return;
      setStep(found.step);
      setDrawn(made);
      const of = (column: number) => made.lines.find((line) => line.column === column)?.y;
      if (second === UNSET) setSecond(ys.find((_, i) => i > 0 && apart(of(0), of(i))) ?? -1);
    })();
    return () => {
      live = false;
    };
  }, [answer, x, ys, keys, ended]);

  const lines = useMemo<Line[]>(
    () =>
      (drawn?.lines ?? []).map((line) => {
        const dash = DASHES[(keys?.length ? line.column : Math.floor(line.group / SERIES.length)) % 4];
        return { label: line.label, colour: SERIES[line.group % SERIES.length] as string, ...(dash ? { dash } : {}), kind, second: ys[line.column] === second };
      }),
    [drawn, kind, second],
  );
  const data = useMemo(() => [drawn?.x ?? [], ...(drawn?.lines.map((line) => line.y) ?? [])] as uPlot.AlignedData, [drawn]);

  if (!numeric.length) return <p class="empty">A chart needs a column of numbers; this answer has none.</p>;
  const time = columns[x]?.time ?? false;
  const groups = columns.flatMap((column, i) => (i !== x && !column.time && !ys.includes(i) && KEY.test(column.type) ? [i] : []));
  const toggle = (i: number) => setYs(ys.includes(i) ? ys.filter((one) => one !== i) : [...ys, i]);
  return (
    <div class="chart">
      <div class="options">
        <Choice label="x" value={x} set={setX} options={columns.map((c, i) => [i, c.name] as const).filter(([i]) => columns[i]?.time || columns[i]?.numeric)} />
        <fieldset>
          <legend class="quiet">y</legend>
          {numeric.filter((i) => i !== x).map((i) => (
            <label key={i}><input type="checkbox" checked={ys.includes(i)} onChange={() => toggle(i)} /> {columns[i]?.name}</label>
          ))}
        </fieldset>
        {groups.length > 0 && (
          <fieldset>
            <legend class="quiet">Lines by</legend>
            {groups.map((i) => (
              <label key={i}><input type="checkbox" checked={keys?.includes(i) ?? false} onChange={() => setKeys(keys?.includes(i) ? keys.filter((one) => one !== i) : [...(keys ?? []), i])} /> {columns[i]?.name}</label>
            ))}
          </fieldset>
        )}
        {ys.length > 1 && <Choice label="Right axis" value={second} set={setSecond} options={[[-1, "–"], ...ys.map((i) => [i, columns[i]?.name ?? ""] as const)]} />}
        <label><span class="quiet">Kind</span> <select value={kind} onChange={(e) => setKind(e.currentTarget.value as Kind)}>{KINDS.map((one) => <option key={one}>{one}</option>)}</select></label>
        <label><input type="checkbox" checked={log} onChange={() => setLog(!log)} /> log</label>
        <span class="space" />
        {time && range && <button type="button" onClick={() => newTab(within(run.sql, columns[x]?.name ?? "", range))}>Query this range</button>}
        <button type="button" onClick={() => plot.current?.ctx.canvas.toBlob((blob) => blob && save(blob, "chart.png"))}>PNG</button>
      </div>
      {step > 1 && <p class="quiet note">Every {count(step)}th row is drawn; windows (TUMBLE) would summarise all of them.</p>}
      {drawn && drawn.left > 0 && <p class="quiet note">The {count(SERIES.length)} largest groups are drawn; {count(drawn.left)} more are not.</p>}
      {drawn && drawn.x.length > 0 ? (
        <Plot label={`Chart of ${ys.map((i) => columns[i]?.name).join(", ")} over ${columns[x]?.name}`} data={data} lines={lines} time={time} log={log} made={(made) => {
          plot.current = made;
          (made.hooks.setScale ??= []).push((u, name) => {
            const { min, max } = u.scales.x ?? {};
            const all = u.data[0];
            if (name === "x" && min != null && max != null) setRange(min > (all[0] ?? 0) || max < (all.at(-1) ?? 0) ? [min, max] : null);
          });
        }} />
      ) : drawn ? (
        <p class="empty">{ys.length ? "No rows to draw." : "Choose a column as y."}</p>
      ) : (
        <Loading what="Drawing…" />
      )}
    </div>
  );
}

/** Whether two lines are of so different size that one axis would flatten one of them. */
function apart(a: (number | null)[] | undefined, b: (number | null)[] | undefined): boolean {
  const most = (all: (number | null)[] = []) => all.reduce<number>((top, one) => Math.max(top, Math.abs(one ?? 0)), 0);
  const [x, y] = [most(a), most(b)];
  return x > 0 && y > 0 && Math.max(x / y, y / x) > 20;
}

function Choice({ label, value, set, options }: { label: string; value: number; set: (value: number) => void; options: (readonly [number, string])[] }) {
  return (
    <label>
      <span class="quiet">{label}</span>{" "}
      <select value={value} onChange={(e) => set(Number(e.currentTarget.value))}>
        {options.map(([i, name]) => <option key={i} value={i}>{name}</option>)}
      </select>
    </label>
  );
}

function within(sql: string, column: string, [from, to]: [number, number]): string {
  const text = (ms: number) => `TIMESTAMP '${new Date(ms).toISOString().replace("T", " ").replace("Z", "")}'`;
  const name = quoted(column);
  return `SELECT * FROM (\n${sql}\n) AS shown\nWHERE ${name} >= ${text(from)} AND ${name} < ${text(to)}`;
}
