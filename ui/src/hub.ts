// One stream for all tabs of a browser. A browser keeps six HTTP/1.1 connections to a server, and a stream holds one
// for as long as it is open: with a stream for each tab, the seventh tab would wait for ever.
// The hub runs in a SharedWorker; where a browser has none, each page has a hub of its own.
import type { Changes, Live } from "./types";

/** What a tab wants to hear of. */
export interface Wish {
  topics: string[];
  xr: string;
}

/** What a hub tells a tab. `reload` means: ask for everything again. */
export type Told =
  | { what: "live"; live: boolean; message: string }
  | { what: "changes"; changes: Changes }
  | { what: "reload" }
  | { what: "ended" };

export type Tab = (told: Told) => void;

/** As much of an EventSource as is needed. */
export interface Source {
  readonly readyState: number;
  onerror: ((event: Event) => void) | null;
  addEventListener(name: string, call: (event: MessageEvent<string>) => void): void;
  close(): void;
}

export const MAX_TREES = 16;
const CLOSED = 2;
const RETRY_MS = 2000;
const LINGER_MS = 5000;

export class Hub {
  private readonly wishes = new Map<Tab, Wish>();
  private source: Source | null = null;
  private topics = new Set<string>(); // of the stream that is open
  private trees = new Set<string>();
  private last = "";
  private live: { live: boolean; message: string } | null = null;
  private again: ReturnType<typeof setTimeout> | undefined;
  private narrowing: ReturnType<typeof setTimeout> | undefined;
  private ended = false;

  constructor(
    private readonly prefix: string,
    private readonly open: (address: string) => Source,
  ) {}

  /** A tab says what it wants from now on: the stream is opened anew only if it wants what nobody wanted before. */
  wish(tab: Tab, wish: Wish): void {
    const known = this.wishes.has(tab);
    this.wishes.set(tab, wish);
    if (this.ended) {
      this.ended = false;
      this.last = "";
    }
    if (!known && this.live) tab({ what: "live", ...this.live });
    const { topics, trees } = this.wanted();
    const enough = [...topics].every((each) => this.topics.has(each)) && [...trees].every((each) => this.trees.has(each));
    if (!this.source || !enough) this.connect();
    else this.narrow();
  }

  leave(tab: Tab): void {
    this.wishes.delete(tab);
    if (this.wishes.size) this.narrow();
    else this.close();
  }

  close(): void {
    this.source?.close();
    this.source = null;
    this.live = null;
    clearTimeout(this.again);
    clearTimeout(this.narrowing);
  }

  private wanted(): { topics: Set<string>; trees: Set<string> } {
    const topics = new Set<string>();
    const trees = new Set<string>();
    for (const wish of this.wishes.values()) {
      wish.topics.forEach((topic) => topics.add(topic));
      if (wish.xr) trees.add(wish.xr);
    }
    return { topics, trees: new Set([...trees].slice(-MAX_TREES)) };
  }

  /** What nobody wants any more is left out after a while: walking from screen to screen opens no stream each time. */
  private narrow(): void {
    clearTimeout(this.narrowing);
    this.narrowing = setTimeout(() => {
      const { topics, trees } = this.wanted();
      if (this.source && (topics.size < this.topics.size || trees.size < this.trees.size)) this.connect();
    }, LINGER_MS);
  }

  private connect(): void {
    this.source?.close();
    clearTimeout(this.again);
    clearTimeout(this.narrowing);
    ({ topics: this.topics, trees: this.trees } = this.wanted());
    const query = new URLSearchParams({ topics: [...this.topics].sort().join(",") });
    for (const xr of [...this.trees].sort()) query.append("xr", xr);
    if (this.last) query.set("lastEventId", this.last);
    const source = (this.source = this.open(`${this.prefix}/stream?${query}`));
    source.addEventListener("live", (event) => {
      this.remember(event);
      const told = JSON.parse(event.data) as Live;
      this.state(told.live, told.message);
    });
    source.addEventListener("changes", (event) => {
      this.remember(event);
      this.tell({ what: "changes", changes: JSON.parse(event.data) as Changes });
    });
    source.addEventListener("reload", (event) => {
      this.remember(event);
      this.tell({ what: "reload" });
    });
    source.addEventListener("ended", () => {
      this.close();
      this.ended = true;
      this.tell({ what: "ended" });
    });
    source.onerror = () => {
      this.state(false, "the dashboard's server does not answer; trying again");
      // A browser gives up after an answer that is no stream: an expired session, a server that restarts.
      if (source.readyState === CLOSED && this.source === source && !this.ended) {
        clearTimeout(this.again);
        this.again = setTimeout(() => this.connect(), RETRY_MS);
      }
    };
  }

  private state(live: boolean, message: string): void {
    this.live = { live, message };
    this.tell({ what: "live", live, message });
  }

  private remember(event: MessageEvent<string>): void {
    this.last = event.lastEventId || this.last;
  }

  private tell(told: Told): void {
    for (const tab of [...this.wishes.keys()]) tab(told);
  }
}
