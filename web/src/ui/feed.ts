/** Server-sent events read by fetch: EventSource cannot send a token. */
import { request } from "../api";

export interface Told {
  event: string;
  id: string;
  data: string;
}

/** Events of a feed until it ends or is stopped; goes on behind the last one when it breaks off. */
export async function* follow(path: string, stop: AbortSignal): AsyncGenerator<Told> {
  let last = "";
  let wait = 1000;
  while (!stop.aborted) {
    const headers: Record<string, string> = { Accept: "text/event-stream" };
    if (last) headers["Last-Event-ID"] = last;
    const response = await request(path, { headers, signal: stop });
    wait = 1000;
    try {
      for await (const told of eventsOf(response)) {
        if (told.id) last = told.id;
        yield told;
        if (told.event === "error" || told.event === "bye") break;
      }
    } catch (error) {
      if (stop.aborted) return;
      void error; // the connection was lost: it is made again
    }
    await new Promise((resolve) => setTimeout(resolve, wait));
    wait = Math.min(30_000, wait * 2);
  }
}

async function* eventsOf(response: Response): AsyncGenerator<Told> {
  const decoder = new TextDecoder();
  const reader = (response.body as ReadableStream<Uint8Array>).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    rest += decoder.decode(value, { stream: true });
    for (let at = rest.indexOf("\n\n"); at >= 0; at = rest.indexOf("\n\n")) {
      const told = parsed(rest.slice(0, at));
      rest = rest.slice(at + 2);
      if (told) yield told;
    }
  }
}

/** One block of a feed; null for comments. */
export function parsed(block: string): Told | null {
  const told: Told = { event: "message", id: "", data: "" };
  for (const line of block.split("\n")) {
    const found = /^(event|id|data): ?(.*)$/.exec(line);
    if (found?.[1] === "data") told.data += (told.data ? "\n" : "") + found[2];
    else if (found) told[found[1] as "event" | "id"] = found[2] ?? "";
  }
  return told.data ? told : null;
}
