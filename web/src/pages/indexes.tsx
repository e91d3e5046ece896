/** Indexes: what there are; a new one is built as a job, which goes on when the page is left. */
import { useEffect, useState } from "preact/hooks";
import { address, may, messageOf, refreshStreams, remove, streams } from "../api";
import { JobProgress, useJob } from "../ui/job";
import { Instead, Scroll } from "../ui/loading";
import { bytes, count, share } from "../ui/numbers";
import { useRows } from "../ui/rows";
import { Sure } from "../ui/sure";

interface IndexRow {
  stream: string;
  attribute: string;
  state: string;
  covered: number | null;
  runs: number;
  bytes: number;
  problem: string | null;
}

export function Indexes() {
  const [round, setRound] = useState(0);
  const { rows, problem } = useRows<IndexRow>("SELECT * FROM chronicle.indexes ORDER BY stream, attribute", round);
  const [stream, setStream] = useState("");
  const [attribute, setAttribute] = useState("");
  const [trouble, setTrouble] = useState("");
  const again = () => setRound((old) => old + 1);
  const { job, problem: failure, start } = useJob(again);
  useEffect(() => void refreshStreams(), []);
  const known = (streams.value ?? []).filter((one) => !one.damage && may("admin", one.name));
  const columns = known.find((one) => one.name === stream)?.schema ?? [];
  const drop = async (one: IndexRow) => {
    setTrouble("");
    try {
      await remove(address("streams", one.stream, "indexes", one.attribute));
    } catch (error) {
      setTrouble(messageOf(error));
    }
    again();
  };
  return (
    <section aria-label="Indexes">
      <div class="options"><h2>Indexes</h2><span class="quiet">filters and patterns on an indexed column skip most of the stream</span></div>
      <Instead of={rows} problem={trouble || failure || problem} none="No indexes yet." />
      {rows && rows.length > 0 && (
        <Scroll label="Indexes, all columns">
          <table class="list" aria-label="Indexes">
            <thead><tr><th>Stream</th><th>Column</th><th>State</th><th class="number">Covers</th><th class="number">Runs</th><th class="number">Size</th><td /></tr></thead>
            <tbody>
              {rows.map((one) => (
                <tr key={`${one.stream}\n${one.attribute}`}>
                  <td><a href={`#/streams/${encodeURIComponent(one.stream)}`}>{one.stream}</a></td>
                  <td><code>{one.attribute}</code></td>
                  <td><span class={`badge ${one.problem ? "bad" : "good"}`}>{one.state}</span>{one.problem && <span class="bad"> {one.problem}</span>}</td>
                  <td class="number">{one.covered === null ? "" : share(one.covered, 1)}</td>
                  <td class="number">{count(one.runs)}</td>
                  <td class="number">{bytes(one.bytes)}</td>
                  <td class="number"><Sure label={`Drop the index on ${one.stream} ${one.attribute}`} text="Drop" act={() => void drop(one)} /></td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      )}
      <form class="options" aria-label="New index" onSubmit={(event) => (event.preventDefault(), start({ kind: "index", stream, attribute }))}>
        <label><span class="quiet">Stream</span> <select aria-label="Stream" value={stream} onChange={(e) => (setStream(e.currentTarget.value), setAttribute(""))}><option value="">choose…</option>{known.map((one) => <option key={one.name}>{one.name}</option>)}</select></label>
        <label><span class="quiet">Column</span> <select aria-label="Attribute" value={attribute} onChange={(e) => setAttribute(e.currentTarget.value)}><option value="">choose…</option>{columns.map((one) => <option key={one.name}>{one.name}</option>)}</select></label>
        <button type="submit" class="primary" disabled={job !== null || !stream || !attribute}>Create index</button>
        {job && <JobProgress job={job} what={`the index on ${job.stream} ${job.attribute}`} />}
      </form>
    </section>
  );
}
