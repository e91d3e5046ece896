/** Health: one snapshot of the server, and its last quarter of an hour as small charts. */
import { useMemo } from "preact/hooks";
import type uPlot from "uplot";
import { session } from "../api";
import { type Line, Plot } from "../chart/plot";
import { bytes, count, seconds, short } from "../ui/numbers";
import { useRepeated } from "../ui/repeated";

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
  gates: Record<string, Gate>;
  store: Record<string, number>;
  trouble: string | null;
  every_s: number;
  history: Record<string, (number | null)[]>;
}

const SPARKS: [string, string, (value: number) => string][] = [
  ["appended_events_per_s", "Events appended a second", short],
  ["append_ms", "Mean time of an append", (v) => seconds(v / 1000)],
  ["queries_per_s", "Queries a second", short],
  ["query_ms", "Mean time of a query", (v) => seconds(v / 1000)],
  ["queries_running", "Queries running", short],
  ["memory_bytes", "Memory", bytes],
];

export function HealthPage() {
  const { found, problem } = useRepeated<StatusSnapshot>("v1/status", 5000);
  const now = session.value;
  return (
    <main class="page">
      <div class="pagehead">
        <h1>Health</h1>
        {found && <span class={`badge ${found.trouble ? "bad" : "good"}`}>{found.trouble ? "in trouble" : found.state}</span>}
        <span class="space" />
        <a class="button" href="../docs">API reference</a>
      </div>
      {problem && <p class="banner bad" role="alert">{problem}</p>}
      {found?.trouble && <p class="banner bad" role="alert">{found.trouble}</p>}
      {found && (
        <>
          <dl class="facts">
            <Fact name="Version" value={found.version} />
            <Fact name="Up" value={seconds(found.uptime_s)} />
            <Fact name="Store" value={found.mode === "r" ? "reading only" : "open for writing"} />
            <Fact name="Memory" value={bytes(found.memory_bytes)} />
            {found.disk_free_bytes !== null && <Fact name="Disk free" value={bytes(found.disk_free_bytes)} />}
            <Fact name="Flight SQL" value={found.flight_port === null ? "off; --flight-port opens it" : `port ${found.flight_port}`} />
            {now && <Fact name="Token" value={now.open ? "none: the server is open" : `${now.name ?? ""} (${now.scopes.join(", ")})`} />}
          </dl>
          <div class="sparks">
            {SPARKS.filter(([name]) => found.history[name]).map(([name, label, text]) => (
              <Spark key={name} label={label} values={found.history[name] ?? []} every={found.every_s} text={text} />
            ))}
          </div>
          <section aria-label="Gates">
            <div class="options"><h2>Places</h2><span class="quiet">what runs at once, and what waits for its turn</span></div>
            <div class="scroll">
              <table class="list">
                <thead><tr><th>Of</th><th class="number">Running</th><th class="number">Waiting</th><th class="number">Limit</th><th>Use</th></tr></thead>
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
            </div>
          </section>
          <section aria-label="Store">
            <div class="options"><h2>Store</h2><span class="quiet">summed over its streams</span></div>
            <dl class="facts padded">
              {Object.entries(found.store).map(([name, value]) => (
                <Fact key={name} name={name.replaceAll("_", " ")} value={name.includes("bytes") ? bytes(value) : count(value)} />
              ))}
            </dl>
          </section>
        </>
      )}
    </main>
  );
}

function Fact({ name, value }: { name: string; value: string }) {
  return <div><dt>{name}</dt><dd>{value}</dd></div>;
}

const LINE: Line[] = [{ label: "value", colour: "series-1", kind: "area" }];

function Spark(props: { label: string; values: (number | null)[]; every: number; text: (value: number) => string }) {
  const { label, values, every, text } = props;
  const data = useMemo(() => {
    const now = Date.now();
    return [values.map((_, i) => now - (values.length - 1 - i) * every * 1000), values] as uPlot.AlignedData;
  }, [values]);
  const last = values.findLast((value) => value !== null);
  return (
    <figure class="spark">
      <figcaption><span class="quiet">{label}</span> <b>{last === undefined || last === null ? "–" : text(last)}</b></figcaption>
      {values.length > 1 && last !== undefined ? <Plot label={`${label}, the last quarter of an hour`} data={data} lines={LINE} time clocks height={96} legend={false} /> : <p class="quiet hint">Nothing yet.</p>}
    </figure>
  );
}
