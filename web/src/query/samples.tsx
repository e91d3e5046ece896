/** What to try: queries for what is in this store, or how events come into an empty one. */
import { useEffect, useState } from "preact/hooks";
import { address, getJson, may, ROOT, streams, streamsProblem } from "../api";
import { Loading } from "../ui/loading";
import { start } from "./run";
import { columnsOf, type Peak, type Sample, sampled, samplesOf } from "./samplesof";
import { changeTab, newTab, type Tab } from "./shelf";

export function Samples({ tab }: { tab: Tab }) {
  const all = streams.value;
  const stream = all && sampled(all);
  const [peak, setPeak] = useState<Peak | null>(null);
  const value = stream ? columnsOf(stream).value?.name : undefined;
  useEffect(() => {
    if (!stream || !value) return;
    const asked = new URLSearchParams({ attribute: value, functions: "avg,max" });
    void getJson<{ aggregates: Record<string, Peak> }>(`${address("streams", stream.name, "aggregate")}?${asked}`).then(
      (found) => setPeak(found.aggregates[value] ?? null),
      () => undefined, // the other samples need no threshold
    );
  }, [stream?.name, value]);
  if (!all) return streamsProblem.value ? null : <Loading />;
  if (!stream) return <NoEvents />;
  const run = ({ sql, title, view }: Sample) => {
    const own = tab.sql.trim() ? newTab(sql, title) : { ...tab, sql };
    changeTab(own.id, { sql, view });
    void start(own, sql, 0);
  };
  return (
    <div class="samples">
      <h2>Try one of these on {stream.name}</h2>
      <ul>
        {samplesOf(stream, peak).map((sample) => (
          <li key={sample.title}>
            <button type="button" onClick={() => run(sample)}><b>{sample.title}</b> <span class="quiet">{sample.text}</span><code>{sample.sql}</code></button>
          </li>
        ))}
      </ul>
      <p class="quiet">Or write a statement above and press <kbd>Ctrl</kbd>+<kbd>Enter</kbd>. <a href="#/help/sql">The SQL of Chronicle</a></p>
    </div>
  );
}

/** How events come into a store. */
export function NoEvents() {
  const server = location.origin + ROOT;
  return (
    <div class="samples">
      <h2>This store has no events yet</h2>
      <ul>
        {may("ingest") && <li><p><a href="#/import"><b>Import a file</b></a> <span class="quiet">CSV, JSON, Parquet, Arrow or Excel, here in the browser</span></p></li>}
        <li><p><b>From the command line</b> <span class="quiet">files, directories and patterns of names</span></p><pre tabIndex={0}>{`chronicle ingest readings.csv --url ${server} \\\n  --stream readings --time at --create`}</pre></li>
        <li><p><b>By HTTP</b> <span class="quiet">from other programs</span></p><pre tabIndex={0}>{`curl --data-binary @readings.csv \\\n  '${server}v1/ingest?name=readings.csv&stream=readings&time=at&create=true'`}</pre></li>
        <li><p><b>With made-up events</b> <span class="quiet">two million of forty machines, to look around</span></p><pre tabIndex={0}>chronicle demo --serve</pre></li>
      </ul>
      <p class="quiet"><a href="#/help/first-steps">First steps</a></p>
    </div>
  );
}
