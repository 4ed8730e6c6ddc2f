// What a page hears of: which topics changed; screens ask again for what they show, rows come with it.
import { effect, signal } from "@preact/signals";
import { PREFIX } from "./address";
import { needsLogin, session } from "./api";
import { Hub, type Told, type Wish } from "./hub";
import type { StreamChange as Change } from "./types";

export type Listener = (changes: Change[] | null) => void;

export const live = signal(false);
export const liveMessage = signal("connecting");
export const asOf = signal<string>("");

/** The way to the hub: of all tabs, or of this one where the browser cannot share. `null` leaves it. */
type Way = (wish: Wish | null) => void;

let way: Way | null = null;
let sent = "";
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
    ask();
  });
}

function wanted(): Wish | null {
  const topics = new Set<string>();
  let xr = "";
  for (const each of listeners) {
    each.topics.forEach((topic) => topics.add(topic));
    xr = each.xr || xr;
  }
  return topics.size ? { topics: [...topics].sort(), xr } : null;
}

function ask(): void {
  const wish = wanted();
  const text = JSON.stringify(wish);
  if (text === sent || (!wish && !way)) return;
  sent = text;
  way ??= open();
  way(wish);
}

function open(): Way {
  if (typeof SharedWorker === "function") {
    // Sessions do not share: whoever logs in as somebody else in another tab hears what that identity may.
    const name = `planform ${session.value?.csrf.slice(-8) ?? ""}`;
    const worker = new SharedWorker(new URL("./hub.worker.ts", import.meta.url), { type: "module", name });
    worker.port.onmessage = (event: MessageEvent<Told>) => hear(event.data);
    return (wish) => worker.port.postMessage(wish);
  }
  const hub = new Hub(PREFIX, (address) => new EventSource(address));
  return (wish) => (wish && !document.hidden ? hub.wish(hear, wish) : hub.leave(hear));
}

/** A page that is left, or hidden where each has a stream of its own, holds nothing; one that is seen again catches up. */
function pause(): void {
  if (way && sent !== "null") {
    way(null);
    sent = "null";
  }
}

addEventListener("pagehide", pause);
addEventListener("pageshow", (event) => {
  if (event.persisted) resume();
});
document.addEventListener("visibilitychange", () => {
  if (typeof SharedWorker === "function") return;
  if (document.hidden) pause();
  else resume();
});

function resume(): void {
  ask();
  tell(null);
}

// Whoever logs in again gets a stream of the new session.
effect(() => {
  session.value;
  pause();
  way = null;
  schedule();
});

function hear(told: Told): void {
  switch (told.what) {
    case "live": {
      const was = live.value;
      live.value = told.live;
      liveMessage.value = told.message;
      if (told.live && !was && asOf.value) tell(null);
      asOf.value = new Date().toISOString();
      break;
    }
    case "changes":
      asOf.value = told.changes.asOf;
      tell(told.changes.changes);
      break;
    case "reload":
      tell(null);
      break;
    case "ended":
      sent = "null";
      needsLogin.value = true;
  }
}

function tell(changes: Change[] | null): void {
  for (const each of [...listeners]) {
    if (changes === null) each.call(null);
    else {
      const mine = changes.filter((change) => (change.topic === "tree" ? each.xr === change.id : each.topics.has(change.topic)));
      if (mine.length) each.call(mine);
    }
  }
}
