// The one stream of a page. It says which topics changed; screens ask again for what they show, rows come with it.
import { signal } from "@preact/signals";
import { PREFIX, needsLogin, query } from "./api";
import type { StreamChange as Change, Changes, Live } from "./types";

export type Listener = (changes: Change[] | null) => void;

export const live = signal(false);
export const liveMessage = signal("connecting");
export const asOf = signal<string>("");

let source: EventSource | null = null;
let wanted = "";
let last = "";
let retry: ReturnType<typeof setTimeout> | undefined;
const listeners = new Set<{ topics: Set<string>; xr: string; call: Listener }>();

/** Hear of changes of these topics (and of everything below one XR). `null` means: ask for everything again. */
export function subscribe(topics: string[], call: Listener, xr = ""): () => void {
  const entry = { topics: new Set(topics), xr, call };
  listeners.add(entry);
  schedule();
  return () => {
    listeners.delete(entry);
    schedule();
  };
}

let scheduled = false;
function schedule(): void {
  if (scheduled) return;
  scheduled = true;
  queueMicrotask(() => {
    scheduled = false;
    connect();
  });
}

function address(): string {
  const topics = new Set<string>();
  let xr = "";
  for (const each of listeners) {
    each.topics.forEach((topic) => topics.add(topic));
    xr = each.xr || xr;
  }
  return topics.size ? `${PREFIX}/stream${query({ topics: [...topics].sort().join(","), xr })}` : "";
}

function connect(force = false): void {
  const next = address();
  if (next === wanted && source && !force) return;
  source?.close();
  clearTimeout(retry);
  wanted = next;
  if (!next) return;
  source = new EventSource(next + (last ? `${next.includes("?") ? "&" : "?"}lastEventId=${encodeURIComponent(last)}` : ""));
  source.addEventListener("live", (event) => {
    const told = JSON.parse((event as MessageEvent<string>).data) as Live;
    remember(event);
    const was = live.value;
    live.value = told.live;
    liveMessage.value = told.message;
    if (told.live && !was && asOf.value) tell(null);
    asOf.value = new Date().toISOString();
  });
  source.addEventListener("changes", (event) => {
    remember(event);
    const told = JSON.parse((event as MessageEvent<string>).data) as Changes;
    asOf.value = told.asOf;
    tell(told.changes);
  });
  source.addEventListener("reload", (event) => {
    remember(event);
    tell(null);
  });
  source.addEventListener("ended", () => {
    dropStream();
    needsLogin.value = true;
  });
  source.onerror = () => {
    live.value = false;
    liveMessage.value = "the dashboard's server does not answer; trying again";
    // A browser gives up after an answer that is no stream: an expired session, a server that restarts.
    if (source?.readyState === EventSource.CLOSED && !needsLogin.value) {
      clearTimeout(retry);
      retry = setTimeout(() => connect(true), 2000);
    }
  };
}

function remember(event: Event): void {
  last = (event as MessageEvent).lastEventId || last;
}

function tell(changes: Change[] | null): void {
  for (const each of [...listeners]) {
    if (changes === null) each.call(null);
    else {
      const mine = changes.filter((change) => each.topics.has(change.topic) || (change.topic === "tree" && each.xr));
      if (mine.length) each.call(mine);
    }
  }
}

export function dropStream(): void {
  source?.close();
  source = null;
  wanted = "";
  last = "";
}
