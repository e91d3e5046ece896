/** Health: what is wrong, how much comes in, how long queries take, how large the store is; the rest behind it. */
import { useMemo, useState } from "preact/hooks";
import type uPlot from "uplot";
import { may, session } from "../api";
import { type Line, Plot } from "../chart/plot";
import { Loading, Scroll } from "../ui/loading";
import { bytes, count, seconds, short } from "../ui/numbers";
import { useRepeated } from "../ui/repeated";
import { troubles } from "./troubles";
import type { LiveQuery } from "./live";

interface Gate {
  running: number;
  waiting: number;
  limit: number;
}

export interface StatusSnapshot {
  version: string;
  state: string;
  mode: string;
  uptime_s: number;
  memory_bytes: number;
  disk_free_bytes: number | null;
  flight_port: number | null;
  postgres_port: number | null;
  gates: Record<string, Gate>;
  store: Record<string, number>;
  trouble: string | null;
  every_s: number;
  history: Record<string, (number | null)[]>;
}

interface Metric {
  name: string;
  label: string;
  text: (value: number) => string;
  /** Steps between lines of the axis, where powers of ten would not do. */
  steps?: number[];
}

const ms = (value: number) => seconds(value / 1000);
const perSecond = (what: string) => (value: number) => `${short(value)} ${what}/s`;
const POWERS = Array.from({ length: 40 }, (_, i) => 2 ** i);
const INGEST: Metric = { name: "appended_events_per_s", label: "Ingest rate", text: perSecond("events") };
const LATENCY: Metric = { name: "query_ms", label: "Query latency (mean)", text: ms };
const MORE: Metric[] = [
  { name: "queries_per_s", label: "Queries", text: perSecond("queries") },
  { name: "queries_running", label: "Queries running", text: short },
  { name: "append_ms", label: "Append latency (mean)", text: ms },
  { name: "memory_bytes", label: "Memory", text: bytes, steps: POWERS },
];

export function HealthPage() {
  const { found, problem } = useRepeated<StatusSnapshot>("v1/status", 5000);
  const [all, setAll] = useState(false);
  return (
    <main class="page">
      <div class="pagehead"><h1>Health</h1><span class="space" /><a class="button" href="../docs">API reference</a></div>
      {problem && <p class="banner bad" role="alert">{problem}</p>}
      {!found && !problem && <Loading />}
      {found && (
        <>
          {may("read") ? <WithLive found={found} /> : <Verdict found={found} live={[]} />}
          <div class="sparks">
            <Spark metric={INGEST} found={found} />
            <Spark metric={LATENCY} found={found} />
            {found.store.bytes !== undefined && <Size found={found} />}
          </div>
          <details onToggle={(event) => setAll(event.currentTarget.open)}>
            <summary>All metrics</summary>
            {all && <AllMetrics found={found} />}
          </details>
        </>
      )}
    </main>
  );
}

/** What is wrong, in plain words; or that nothing is. */
function Verdict({ found, live }: { found: StatusSnapshot; live: LiveQuery[] }) {
  const wrong = troubles(found, live);
  if (!wrong.length) return <p class="banner ok" role="status"><strong>Everything works.</strong> Running for {seconds(found.uptime_s)}.</p>;
  return <div class="banner bad" role="alert"><strong>{wrong.length > 1 ? `${wrong.length} things need attention` : "One thing needs attention"}</strong><ul>{wrong.map((one) => <li key={one}>{one}</li>)}</ul></div>;
}

function WithLive({ found }: { found: StatusSnapshot }) {
  const { found: known, problem } = useRepeated<{ live: LiveQuery[] }>("v1/live", 10_000);
  return known || problem ? <Verdict found={found} live={known?.live ?? []} /> : <Loading />;
}

function Size({ found: { store, disk_free_bytes: free } }: { found: StatusSnapshot }) {
  const used = (store.bytes ?? 0) + (store.log_bytes ?? 0);
  return (
    <section class="spark" aria-label="Store size">
      <p class="value"><span class="quiet">Store size</span> <b>{bytes(used)}</b></p>
      <dl class="facts">
        <Fact name="Events" value={count(store.events ?? 0)} />
        <Fact name="Streams" value={count(store.streams ?? 0)} />
        {free !== null && <Fact name="Disk free" value={bytes(free)} />}
      </dl>
      {free !== null && <meter aria-label="Share of the disk's room that the store takes" min={0} max={used + free} value={used} />}
    </section>
  );
}

function AllMetrics({ found }: { found: StatusSnapshot }) {
  const now = session.value;
  return (
    <>
      <dl class="facts">
        <Fact name="Version" value={found.version} />
        <Fact name="State" value={found.state} />
        <Fact name="Running for" value={seconds(found.uptime_s)} />
        <Fact name="Store" value={found.mode === "r" ? "read-only" : "read and write"} />
        <Fact name="Memory" value={bytes(found.memory_bytes)} />
        <Fact name="Flight SQL" value={found.flight_port === null ? "off; --flight-port opens it" : `port ${found.flight_port}`} />
        <Fact name="PostgreSQL" value={found.postgres_port === null ? "off; --postgres-port opens it" : `port ${found.postgres_port}`} />
        {now && <Fact name="Token" value={now.open ? "none: the server is open" : `${now.name ?? ""} (${now.scopes.join(", ")})`} />}
      </dl>
      <div class="sparks">{MORE.map((metric) => <Spark key={metric.name} metric={metric} found={found} />)}</div>
      <section aria-label="Slots">
        <div class="options"><h2>Slots</h2><span class="quiet">requests that run at once, and those that wait</span></div>
        <Scroll label="Slots">
          <table class="list">
            <thead><tr><th>Requests</th><th class="number">Running</th><th class="number">Waiting</th><th class="number">Limit</th><th>In use</th></tr></thead>
            <tbody>
              {Object.entries(found.gates).map(([name, gate]) => (
                <tr key={name}>
                  <td>{name}</td>
                  <td class="number">{count(gate.running)}</td>
                  <td class="number">{count(gate.waiting)}</td>
                  <td class="number">{count(gate.limit)}</td>
                  <td><meter aria-label={`${name} in use`} min={0} max={gate.limit} high={gate.limit * 0.8} value={gate.running} /></td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      </section>
      <section aria-label="Store">
        <div class="options"><h2>Store</h2><span class="quiet">sums of all streams</span></div>
        <dl class="facts padded">
          {Object.entries(found.store).map(([name, value]) => (
            <Fact key={name} name={name.replaceAll("_", " ")} value={name.includes("bytes") ? bytes(value) : count(value)} />
          ))}
        </dl>
      </section>
    </>
  );
}

function Fact({ name, value }: { name: string; value: string }) {
  return <div><dt>{name}</dt><dd>{value}</dd></div>;
}

const LINE: Line[] = [{ label: "value", colour: "series-1", kind: "area" }];

function Spark({ metric: { name, label, text, steps }, found }: { metric: Metric; found: StatusSnapshot }) {
  const values = found.history[name] ?? [];
  const data = useMemo(() => {
    const now = Date.now();
    return [values.map((_, i) => now - (values.length - 1 - i) * found.every_s * 1000), values] as uPlot.AlignedData;
  }, [values]);
  const last = values.findLast((value) => value !== null) ?? null;
  return (
    <figure class="spark">
      <figcaption class="value"><span class="quiet">{label}</span> <b>{last === null ? "–" : text(last)}</b></figcaption>
      {values.length > 1 && last !== null ? (
        <Plot label={`${label}, the last quarter of an hour`} data={data} lines={LINE} time clocks text={(value) => text(value).replace(/ \w+\/s$/, "/s")} {...(steps ? { steps } : {})} height={130} legend={false} />
      ) : (
        <p class="quiet">{values.length > 1 ? "None in the last quarter of an hour." : "Measured every few seconds: a moment, please."}</p>
      )}
    </figure>
  );
}
