import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { Hub, MAX_TREES, type Source, type Told } from "../src/hub";

class Fake implements Source {
  readyState = 1;
  onerror: ((event: Event) => void) | null = null;
  private readonly calls = new Map<string, (event: MessageEvent<string>) => void>();
  constructor(readonly address: string) {}
  addEventListener(name: string, call: (event: MessageEvent<string>) => void): void {
    this.calls.set(name, call);
  }
  close(): void {
    this.readyState = 2;
  }
  say(name: string, data: unknown, lastEventId = ""): void {
    this.calls.get(name)!({ data: JSON.stringify(data), lastEventId } as MessageEvent<string>);
  }
}

function opened(): { hub: Hub; sources: Fake[]; tab: () => { told: Told[]; call: (told: Told) => void } } {
  const sources: Fake[] = [];
  const hub = new Hub("/api", (address) => {
    sources.push(new Fake(address));
    return sources.at(-1)!;
  });
  const tab = () => {
    const told: Told[] = [];
    return { told, call: (each: Told) => void told.push(each) };
  };
  return { hub, sources, tab };
}

describe("the hub of all tabs", () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());

  it("has one stream, however many tabs want the same", () => {
    const { hub, sources, tab } = opened();
    const tabs = Array.from({ length: 8 }, tab);
    for (const each of tabs) hub.wish(each.call, { topics: ["xrs"], xr: "" });
    expect(sources).toHaveLength(1);
    sources[0]!.say("changes", { changes: [], asOf: "now" });
    for (const each of tabs) expect(each.told).toHaveLength(1);
  });

  it("opens a wider one that goes on where the last was, and closes the last", () => {
    const { hub, sources, tab } = opened();
    hub.wish(tab().call, { topics: ["xrs"], xr: "" });
    sources[0]!.say("live", { live: true, message: "" }, "e.7");
    const second = tab();
    hub.wish(second.call, { topics: ["functions"], xr: "K.g/n/a" });
    expect(sources.map((each) => each.readyState)).toEqual([2, 1]);
    expect(sources[1]!.address).toBe("/api/stream?topics=functions%2Cxrs&xr=K.g%2Fn%2Fa&lastEventId=e.7");
    expect(second.told, "who comes later learns at once whether it is live").toEqual([{ what: "live", live: true, message: "" }]);
  });

  it("leaves out after a while what nobody wants, and closes with the last tab", () => {
    const { hub, sources, tab } = opened();
    const [first, second] = [tab(), tab()];
    hub.wish(first.call, { topics: ["xrs"], xr: "" });
    hub.wish(second.call, { topics: ["functions"], xr: "" });
    hub.leave(second.call);
    expect(sources).toHaveLength(2);
    vi.advanceTimersByTime(6000);
    expect(sources.at(-1)!.address).toBe("/api/stream?topics=xrs");
    hub.leave(first.call);
    expect(sources.every((each) => each.readyState === 2)).toBe(true);
  });

  it("tries again after a refusal, and stops for good once the session has ended", () => {
    const { hub, sources, tab } = opened();
    const one = tab();
    hub.wish(one.call, { topics: ["xrs"], xr: "" });
    sources[0]!.readyState = 2;
    sources[0]!.onerror!(new Event("error"));
    expect(one.told.at(-1)).toMatchObject({ what: "live", live: false });
    vi.advanceTimersByTime(2500);
    expect(sources).toHaveLength(2);
    sources[1]!.say("ended", {});
    expect(one.told.at(-1)).toEqual({ what: "ended" });
    vi.advanceTimersByTime(60_000);
    expect(sources).toHaveLength(2);
  });

  it("follows no more trees than the server lets it", () => {
    const { hub, sources, tab } = opened();
    for (let at = 0; at < MAX_TREES + 4; at++) hub.wish(tab().call, { topics: ["xrs"], xr: `K.g/n/${at}` });
    expect(new URL(sources.at(-1)!.address, "http://x").searchParams.getAll("xr")).toHaveLength(MAX_TREES);
  });
});
