// The fleet: what needs attention first, then who runs which revision, then every XR.
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { ApiError, get, query } from "../api";
import { count, many } from "../format";
import { useForKeys } from "../keys";
import { A, Banner, Bar, Card, Command, Empty, Failure, Screen, Time, useLive } from "../parts/common";
import { Icon } from "../parts/icons";
import { Health, Phase, iconOf, toneOf, wordOf } from "../parts/status";
import { VirtualRows } from "../parts/virtual";
import { go, href, params, setParams } from "../router";
import { subscribe } from "../stream";
import type { Overview as Fleet, KindSummary, XrPage, XrRow } from "../types";

const ATTENTION = ["NotSynced", "Deviating", "NotReady", "Unknown", "Deleting", "Paused"];
const FILTERS = ["q", "kind", "namespace", "health", "revision", "composition"] as const;
const PAGE = 200;
const MOST = 500; // rows that the server gives at a time

export function FleetScreen() {
  const fleet = useLive<Fleet>("fleet", (abort) => get("/overview", abort), ["xrs", "definitions", "revisions", "rollouts", "functions", "providers", "configurations"]);
  return (
    <>
      <div class="title">
        <h1>Fleet</h1>
        {fleet.value && <span class="sub">{`${many(fleet.value.total, "XR")} of ${many(fleet.value.kinds.length, "kind")}`}</span>}
      </div>
      <Screen loaded={fleet}>
        {(value) =>
          value.definitions === 0 ? (
            <Card title="Begin" flush>
              <Empty icon="fleet" title="Nothing is defined yet" commands={["planform apply -f examples/app/platform", "planform get xrds", "planform trace KIND NAME"]}>
                Define an API with an XRD and a Composition; its XRs show up here by themselves.
              </Empty>
            </Card>
          ) : (
            <>
              {value.problems.map((each) => (
                <Banner key={each.what} tone="warn" icon="warn">
                  <p>
                    <b>{each.what}s are not shown.</b> {each.message}
                  </p>
                  {each.hint && <p class="muted">{each.hint}</p>}
                </Banner>
              ))}
              <Tiles fleet={value} />
              {value.rollouts.length > 0 && <ActiveRollouts fleet={value} />}
              <Kinds kinds={value.kinds} />
              <Rows />
            </>
          )
        }
      </Screen>
    </>
  );
}

function Tiles({ fleet }: { fleet: Fleet }) {
  const chosen = params.value.get("health") ?? "";
  const shown = ["Ready", ...ATTENTION].filter((state) => fleet.health[state] || state === "Ready" || state === "NotSynced" || state === "NotReady");
  return (
    <div class="tiles" role="group" aria-label="XRs by health; each filters the list">
      {shown.map((state) => (
        <button type="button" key={state} class="tile" aria-current={chosen === state ? "true" : undefined} aria-pressed={chosen === state} onClick={() => setParams({ health: chosen === state ? "" : state })}>
          <b class="num">{count(fleet.health[state] ?? 0)}</b>
          <span class={`tone-${fleet.health[state] ? toneOf(state) : "idle"}`}>
            <Icon name={iconOf(state)} />
            {wordOf(state)}
          </span>
        </button>
      ))}
      {fleet.packagesUnhealthy.length > 0 && (
        <a class="tile" href={href("/control-plane")}>
          <b class="num">{fleet.packagesUnhealthy.length}</b>
          <span class="tone-bad">
            <Icon name="warn" />
            Packages unhealthy
          </span>
        </a>
      )}
    </div>
  );
}

function ActiveRollouts({ fleet }: { fleet: Fleet }) {
  return (
    <Card title="Rolling out" flush>
      <div class="scroll">
        <table>
          <thead>
            <tr>
              <th>Rollout</th>
              <th>Composition</th>
              <th>Phase</th>
              <th>Progress</th>
            </tr>
          </thead>
          <tbody>
            {fleet.rollouts.map((each) => (
              <tr key={each.name}>
                <td>
                  <A to={`/rollout/${each.name}`}>{each.name}</A>
                </td>
                <td>{each.composition}</td>
                <td>
                  <Phase value={each.phase} label={each.waiting ? `${each.phase}, waits for ${each.waiting}` : undefined} />
                </td>
                <td style={{ minWidth: "180px" }}>
                  <div class="row">
                    <div class="grow">
                      <Bar label={`${each.target} of ${each.total} moved`} parts={[{ size: each.target, class: "b-accent", title: `${each.target} moved` }, { size: each.total - each.target, class: "", title: `${each.total - each.target} to go` }]} />
                    </div>
                    <span class="num small muted">
                      {count(each.target)}/{count(each.total)}
                    </span>
                  </div>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Card>
  );
}

function Kinds({ kinds }: { kinds: KindSummary[] }) {
  return (
    <Card title="Kinds, and who runs which revision" flush>
      {kinds.map((kind) => (
        <div class="kind" key={kind.id}>
          <div>
            <a class="link" href={href(`/?kind=${encodeURIComponent(kind.id)}`)}>
              <b>{kind.kind}</b>
            </a>
            <div class="small muted">
              {many(kind.total, "XR")}
              {attention(kind) > 0 && `, ${attention(kind)} to look at`}
            </div>
            <div class="small faint">{kind.group}</div>
          </div>
          <Population kind={kind} />
        </div>
      ))}
    </Card>
  );
}

function attention(kind: KindSummary): number {
  return ATTENTION.reduce((sum, state) => sum + (kind.health[state] ?? 0), 0);
}

function Population({ kind }: { kind: KindSummary }) {
  if (!kind.total) return <Command text={`planform explain ${kind.kind.toLowerCase()}`} />;
  const named = kind.revisions.map((each, index) => ({
    ...each,
    class: `c${Math.min(index, 5) + 1}`,
    label: each.name ? `r${each.number}${each.newest ? " (newest)" : ""}` : "no revision yet",
    composition: kind.compositions.find((name) => each.name.startsWith(name)) ?? kind.compositions[0] ?? "",
  }));
  return (
    <div class="population">
      <Bar tall label={`${kind.kind} by revision: ${named.map((each) => `${each.label} ${each.count}`).join(", ")}`} parts={named.map((each) => ({ size: each.count, class: each.class, title: `${each.label}: ${each.count}` }))} />
      <div class="legend">
        {named.slice(0, 8).map((each) => (
          <a key={each.name} href={href(`/?kind=${encodeURIComponent(kind.id)}&revision=${encodeURIComponent(each.name)}`)}>
            <i class={each.class} aria-hidden="true" />
            {each.label}
            <span class="num">{count(each.count)}</span>
          </a>
        ))}
        {kind.compositions.map((name) => (
          <A key={name} to={`/composition/${name}`} class="link">
            {name}
          </A>
        ))}
      </div>
    </div>
  );
}

function Rows() {
  const rows = useSignal<XrRow[]>([]);
  const page = useSignal<XrPage | null>(null);
  const error = useSignal<ApiError | null>(null);
  const selected = useSignal(-1);
  const asked = useRef(0);
  const wanted = Object.fromEntries(FILTERS.map((name) => [name, params.value.get(name) ?? ""]));
  const key = JSON.stringify(wanted);
  const load = async (more: boolean) => {
    const mine = ++asked.current;
    const before = more ? rows.value : [];
    const enough = more ? before.length + 1 : rows.value.length; // what was loaded before is loaded again, however much
    let next = more ? page.value?.next : "";
    try {
      const loaded: XrRow[] = [...before];
      let found: XrPage;
      do {
        const limit = Math.min(MOST, Math.max(PAGE, enough - loaded.length));
        found = await get<XrPage>(`/xrs${query({ ...wanted, limit, continue: next })}`);
        if (mine !== asked.current) return;
        loaded.push(...found.rows);
        next = found.next;
      } while (next && loaded.length < enough);
      rows.value = loaded;
      page.value = found;
      error.value = null;
    } catch (failed) {
      if (mine === asked.current && failed instanceof ApiError) error.value = failed;
    }
  };
  const latest = useRef(load);
  latest.current = load;
  useEffect(() => {
    rows.value = [];
    selected.value = -1;
    void load(false);
    let later: ReturnType<typeof setTimeout> | undefined;
    const stop = subscribe(["xrs"], (changes) => {
      if (changes === null) {
        void latest.current(false);
        return;
      }
      // A row that is shown changes where it stands, so that nothing jumps under the pointer; order and counts follow.
      const shown = new Map(changes.filter((change) => change.row).map((change) => [change.id, change.row!]));
      const gone = new Set(changes.filter((change) => change.gone).map((change) => change.id));
      if (rows.value.some((row) => shown.has(row.id) || gone.has(row.id))) rows.value = rows.value.filter((row) => !gone.has(row.id)).map((row) => shown.get(row.id) ?? row);
      clearTimeout(later);
      later = setTimeout(() => void latest.current(false), rows.value.length > 500 ? 3000 : 400);
    });
    return () => {
      clearTimeout(later);
      stop();
    };
  }, [key]);
  const open = (index: number) => {
    const row = rows.value[index];
    if (row) go(`/xr/${row.kind}.${row.group}/${row.namespace || "-"}/${row.name}`);
  };
  useEffect(
    () =>
      useForKeys(
        (by) => (selected.value = Math.max(0, Math.min(rows.value.length - 1, selected.value + by))),
        () => open(selected.value),
      ),
    [],
  );
  const filters = FILTERS.filter((name) => wanted[name]);
  return (
    <Card
      title={page.value ? (filters.length ? `${count(page.value.matching)} of ${many(page.value.total, "XR")}` : `All ${many(page.value.total, "XR")}`) : "XRs"}
      flush
      side={
        <div class="row wrap">
          {filters.map((name) => (
            <button type="button" key={name} class="button" onClick={() => setParams({ [name]: "" })} aria-label={`Remove filter ${name} ${wanted[name]}`}>
              {name === "q" ? "“" : `${name}: `}
              {name === "health" ? wordOf(wanted[name]!) : wanted[name]}
              {name === "q" ? "”" : ""} ×
            </button>
          ))}
          <div class="segments" role="group" aria-label="Which XRs">
            <button type="button" aria-pressed={!wanted.health} onClick={() => setParams({ health: "" })}>
              All
            </button>
            <button type="button" aria-pressed={wanted.health === "attention"} onClick={() => setParams({ health: "attention" })}>
              To look at
            </button>
          </div>
        </div>
      }
    >
      {error.value && <Failure error={error.value} again={() => void load(false)} />}
      <div class="xr xr-head" aria-hidden="true">
        <span>Health</span>
        <span>Name</span>
        <span class="wide">Kind</span>
        <span class="wide">Revision</span>
        <span class="wide">Why</span>
        <span>Age</span>
      </div>
      {page.value && rows.value.length === 0 ? (
        <Empty icon="search" title={filters.length ? "Nothing matches" : "No XR yet"} commands={filters.length ? [] : ["planform apply -f xr.yaml"]}>
          {filters.length ? "Remove a filter above." : "Create one of the kinds above."}
        </Empty>
      ) : (
        <VirtualRows
          rows={rows.value}
          height={44}
          total={page.value?.next ? Infinity : rows.value.length}
          selected={selected.value}
          label="XRs"
          onSelect={(index) => (selected.value = index)}
          onOpen={open}
          onNearEnd={() => page.value?.next && void load(true)}
          row={(row, index, on) => (
            <a class="xr" role="option" aria-selected={on} tabIndex={-1} style={{ top: `${index * 44}px` }} href={href(`/xr/${row.kind}.${row.group}/${row.namespace || "-"}/${row.name}`)}>
              <Health value={row.health} />
              <span title={row.name}>
                {row.namespace && <span class="muted">{row.namespace}/</span>}
                <b>{row.name}</b>
              </span>
              <span class="wide muted">{row.kind}</span>
              <span class="wide num muted" title={row.revision}>
                {row.revisionNumber ? `r${row.revisionNumber}` : row.revision ? "…" : "–"}
              </span>
              <span class="wide muted" title={row.message}>
                {row.health === "Ready" ? "" : row.message || row.reason}
              </span>
              <span class="muted">
                <Time at={row.created} />
              </span>
            </a>
          )}
        />
      )}
    </Card>
  );
}
