/** How a query runs: its operators, and what of the stream's history each of them touched. */
import { useEffect, useMemo, useState } from "preact/hooks";
import { askJson } from "../api";
import { Refused } from "../query/trouble";
import type { Run } from "../query/run";
import { Loading } from "../ui/loading";
import { count, seconds } from "../ui/numbers";
import { HistoryMap, rangeOf, type Region } from "./history";
import { type Lane, PartitionLanes } from "./lanes";
import { sentenceOf } from "./sentence";

export interface Operator {
  operator: string;
  figures?: Record<string, number>;
  inputs?: Operator[];
  regions?: { found: Region[]; unit: string | null; cut: boolean; lanes?: Lane[]; partitions?: number };
  [detail: string]: unknown;
}

export interface Plan {
  analyzed: boolean;
  planning_ms?: number;
  total_ms?: number;
  rows?: number;
  plan: Operator;
  text: string;
}

/** A query that took less is run again to be measured without being asked to. */
const AGAIN_S = 2;
/** What is shown without details. */
const FIRST = new Set(["rows", "time_ms", "events_read", "events_replayed", "intervals"]);
const OWN = new Set(["operator", "stream", "figures", "inputs", "regions"]);

export function PlanView({ run }: { run: Run }) {
  const ran = run.answer.end.value?.seconds;
  const [wanted, setAnalyze] = useState<boolean | null>(null);
  const analyze = wanted ?? (ran !== undefined && ran < AGAIN_S);
  const [details, setDetails] = useState(false);
  const [plan, setPlan] = useState<Plan | null>(null);
  const [problem, setProblem] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    const stop = new AbortController();
    setBusy(true);
    setProblem(null);
    const params = Object.keys(run.params).length ? { params: run.params } : {};
    const sql = run.sql.replace(/^\s*explain\s+(analyze\s+)?/i, "");
    askJson<Plan>("v1/explain", { sql, analyze, ...params }, stop.signal)
      .then(setPlan, (error: unknown) => stop.signal.aborted || setProblem(error))
      .finally(() => setBusy(false));
    return () => stop.abort();
  }, [run, analyze]);
  return (
    <div class="plan">
      {plan && !problem && <p class="sentence">{sentenceOf(plan, ran)}</p>}
      <div class="options">
        <label><input type="checkbox" checked={analyze} onChange={() => setAnalyze(!analyze)} /> Run it and measure</label>
        <label><input type="checkbox" checked={details} onChange={() => setDetails(!details)} /> Details</label>
        {busy && plan && <span class="quiet" role="status">Measuring…</span>}
        <span class="space" />
        {plan && (
          <span class="quiet">
            planned in {seconds((plan.planning_ms ?? 0) / 1000)}
            {plan.total_ms !== undefined && `, ran ${seconds(plan.total_ms / 1000)}`}
            {plan.rows !== undefined && `, ${count(plan.rows)} rows`}
          </span>
        )}
        {plan && <button type="button" onClick={() => void navigator.clipboard.writeText(plan.text)}>Copy text</button>}
      </div>
      {problem !== null && <Refused run={run} error={problem} />}
      {!plan && problem === null && <Loading what="Planning…" />}
      {plan && <ol class="operators"><Step step={plan.plan} detailed={details} /></ol>}
    </div>
  );
}

function Step({ step, detailed }: { step: Operator; detailed: boolean }) {
  const figures = Object.entries(step.figures ?? {}).filter(([name]) => detailed || FIRST.has(name));
  const details = Object.entries(step).filter(([name, value]) => !OWN.has(name) && shown(value));
  return (
    <li>
      <section class="operator" aria-label={step.operator}>
        <h2>{step.operator.replace(/([a-z])([A-Z])/g, "$1 $2")}{step.stream ? <span class="quiet"> {String(step.stream)}</span> : null}</h2>
        {step.regions && step.regions.found.length > 0 && <History regions={step.regions} />}
        {detailed && details.length > 0 && (
          <dl>
            {details.map(([name, value]) => (
              <div key={name}><dt>{name.replaceAll("_", " ")}</dt><dd>{textOf(value)}</dd></div>
            ))}
          </dl>
        )}
        {figures.length > 0 && <p class="figures">{figures.map(([name, value]) => <Figure key={name} name={name} value={value} />)}</p>}
      </section>
      {step.inputs && step.inputs.length > 0 && <ol>{step.inputs.map((below, i) => <Step key={i} step={below} detailed={detailed} />)}</ol>}
    </li>
  );
}

function Figure({ name, value }: { name: string; value: number }) {
  const words = name.replaceAll("_", " ");
  if (words.endsWith(" ms")) return <span><b>{seconds(value / 1000)}</b> {words.slice(0, -3)}</span>;
  return <span><b>{Number.isInteger(value) ? count(value) : value.toPrecision(4)}</b> {words}</span>;
}

function History({ regions }: { regions: NonNullable<Operator["regions"]> }) {
  const integers = regions.unit === null;
  const per = PER_MS[regions.unit ?? "ms"] ?? 1;
  const found = useMemo(() => regions.found.map(([from, to, kind, events]): Region => [from / per, to / per, kind, events]), [regions]);
  const lanes = useMemo(() => (regions.lanes ?? []).map((lane) => ({ key: lane.key, found: lane.found.map(([from, to]): [number, number] => [from / per, to / per]) })), [regions]);
  return (
    <>
      <HistoryMap regions={found} cut={regions.cut} integers={integers} indented={lanes.length > 0} />
      {lanes.length > 0 && <PartitionLanes lanes={lanes} range={rangeOf(found)} partitions={regions.partitions ?? lanes.length} />}
    </>
  );
}

const PER_MS: Record<string, number> = { s: 0.001, ms: 1, us: 1000, ns: 1e6 };

function shown(value: unknown): boolean {
  return value !== null && value !== undefined && value !== "" && !(Array.isArray(value) && !value.length);
}

function textOf(value: unknown): string {
  return Array.isArray(value) ? value.map(String).join(", ") : String(value);
}
