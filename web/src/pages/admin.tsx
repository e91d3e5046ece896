/** Admin: tokens, jobs, backups, indexes, what streams keep, settings. */
import { useState } from "preact/hooks";
import { address, everywhere, may, messageOf, postJson, remove, type Scope, session } from "../api";
import { Instead, Scroll } from "../ui/loading";
import { useRepeated } from "../ui/repeated";
import { useRows } from "../ui/rows";
import { Sure } from "../ui/sure";
import { Backups } from "./backups";
import { Indexes } from "./indexes";
import { Jobs } from "./jobs";
import { Storage } from "./storage";

const SCOPES: Scope[] = ["read", "write", "ingest", "metrics", "operate", "admin"];
const EVERY_MS = 10_000;

export function AdminPage() {
  return (
    <main class="page">
      <div class="pagehead"><h1>Admin</h1></div>
      {may("admin") && everywhere() && <Tokens />}
      {may("operate") && <Jobs />}
      {may("operate") && everywhere() && <Backups />}
      {may("admin") && <Indexes />}
      {may("read") && <Storage />}
      {may("admin") && everywhere() && <Settings />}
    </main>
  );
}

interface TokenInfo {
  token_id: string;
  name: string;
  scopes: string[];
  streams: string[];
  created_at: string;
  expires_at: string | null;
  last_used_at: string | null;
}

const day = (text: string | null) => (text ? text.slice(0, 16).replace("T", " ") : "–");

function Tokens() {
  const { found, problem, again } = useRepeated<{ tokens: TokenInfo[] }>("v1/tokens", EVERY_MS);
  const [secret, setSecret] = useState<{ name: string; text: string } | null>(null);
  const [trouble, setTrouble] = useState("");
  const act = async (what: () => Promise<{ name: string; secret: string } | undefined>) => {
    setTrouble("");
    try {
      const made = await what();
      if (made) setSecret({ name: made.name, text: made.secret });
      again();
    } catch (error) {
      setTrouble(messageOf(error));
    }
  };
  const rotate = (token: TokenInfo) => act(() => postJson(address("tokens", token.token_id, "rotate"), {}));
  const revoke = (token: TokenInfo) => act(async () => void (await remove(address("tokens", token.token_id))));
  return (
    <section aria-label="Tokens">
      <div class="options"><h2>Tokens</h2><span class="quiet">who may use this server, and for what</span></div>
      {secret && (
        <p class="banner ok" role="status">
          The secret of {secret.name}, shown only once: <code class="secret">{secret.text}</code>{" "}
          <button type="button" onClick={() => void navigator.clipboard.writeText(secret.text)}>Copy</button>{" "}
          <button type="button" onClick={() => setSecret(null)}>Done</button>
        </p>
      )}
      <Instead of={found?.tokens} problem={trouble || problem} none="None: everyone who reaches this server may do everything. With the first token, every request needs one." />
      {found && found.tokens.length > 0 && (
        <Scroll label="Tokens, all columns">
          <table class="list" aria-label="Tokens">
            <thead><tr><th>Name</th><th>Scopes</th><th>Streams</th><th>Created</th><th>Expires</th><th>Last used</th><td /></tr></thead>
            <tbody>
              {found.tokens.map((token) => (
                <tr key={token.token_id}>
                  <td>{token.name}</td>
                  <td>{token.scopes.map((scope) => <span key={scope} class="badge">{scope}</span>)}</td>
                  <td class="quiet columns">{token.streams.join(", ")}</td>
                  <td>{day(token.created_at)}</td>
                  <td>{day(token.expires_at)}</td>
                  <td>{day(token.last_used_at)}</td>
                  <td class="number actions">
                    <button type="button" aria-label={`Rotate ${token.name}`} onClick={() => void rotate(token)}>Rotate</button>
                    <Sure label={`Revoke ${token.name}`} text="Revoke" act={() => void revoke(token)} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      )}
      {found && <NewToken first={found.tokens.length === 0} make={(spec) => void act(() => postJson("v1/tokens", spec))} />}
    </section>
  );
}

function NewToken({ first, make }: { first: boolean; make: (spec: unknown) => void }) {
  const [name, setName] = useState("");
  const [scopes, setScopes] = useState<string[]>(["read"]);
  const [globs, setGlobs] = useState("*");
  const [expires, setExpires] = useState("");
  const toggle = (scope: string) => setScopes(scopes.includes(scope) ? scopes.filter((one) => one !== scope) : [...scopes, scope]);
  const submit = (event: Event) => {
    event.preventDefault();
    make({ name: name.trim(), scopes, streams: globs.split(/[\s,]+/).filter(Boolean), ...(expires.trim() ? { expires: expires.trim() } : {}) });
    setName("");
  };
  return (
    <form class="options" onSubmit={submit} aria-label="New token">
      <label><span class="quiet">Name</span> <input value={name} required onInput={(e) => setName(e.currentTarget.value)} /></label>
      <fieldset>
        <legend class="quiet">Scopes</legend>
        {SCOPES.map((scope) => <label key={scope}><input type="checkbox" checked={scopes.includes(scope)} onChange={() => toggle(scope)} /> {scope}</label>)}
      </fieldset>
      <label><span class="quiet">Streams</span> <input value={globs} placeholder="* or flights, sensor_*" onInput={(e) => setGlobs(e.currentTarget.value)} /></label>
      <label><span class="quiet">Expires</span> <input value={expires} size={12} placeholder="never, or 90d" onInput={(e) => setExpires(e.currentTarget.value)} /></label>
      <button type="submit" class="primary" disabled={!name.trim() || !scopes.length}>Create token</button>
      {first && !scopes.includes("admin") && <p class="quiet">Without a token with <code>admin</code>, only the command line can create further ones.</p>}
    </form>
  );
}

function Settings() {
  const { rows, problem } = useRows<{ name: string; value: string; description: string }>("SELECT * FROM chronicle.settings ORDER BY name");
  const [words, setWords] = useState("");
  const shown = (rows ?? []).filter((one) => `${one.name} ${one.description}`.toLowerCase().includes(words.toLowerCase()));
  return (
    <section aria-label="Settings">
      <div class="options">
        <h2>Settings</h2>
        <span class="quiet">in effect since the server started{session.value ? `, version ${session.value.version}` : ""}</span>
        <span class="space" />
        <input type="search" aria-label="Search the settings" placeholder="Search" value={words} onInput={(e) => setWords(e.currentTarget.value)} />
      </div>
      <Instead of={rows && shown} problem={problem} none="No setting contains these words." />
      <Scroll label="All settings" tall>
        <table class="list" aria-label="Settings">
          <tbody>{shown.map((one) => <tr key={one.name}><td><code>{one.name}</code></td><td><code>{one.value}</code></td><td class="quiet wrap">{one.description}</td></tr>)}</tbody>
        </table>
      </Scroll>
    </section>
  );
}
