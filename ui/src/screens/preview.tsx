// A preview: the verdict first, then the classes of change, the risky ones before the others.
import { get, path } from "../api";
import { count, many } from "../format";
import { Actions } from "../parts/actions";
import { Treemap } from "../parts/charts";
import { A, Banner, Card, Command, Conditions, Crumbs, Empty, Screen, Time, say, useLive } from "../parts/common";
import { UnifiedDiff } from "../parts/diff";
import { Icon } from "../parts/icons";
import { Phase } from "../parts/status";
import type { ChangeClass, PreviewDetail, PreviewPage } from "../types";

export function PreviewList() {
  const loaded = useLive<PreviewPage>("previews", (abort) => get("/previews", abort), ["previews"]);
  return (
    <>
      <div class="title">
        <h1>Previews</h1>
      </div>
      <Screen loaded={loaded}>
        {(page) => (
          <Card title={many(page.rows.length, "Preview")} flush>
            {page.rows.length ? (
              <div class="scroll">
                <table>
                  <thead>
                    <tr>
                      <th>Name</th>
                      <th>Phase</th>
                      <th>Change</th>
                      <th>Verdict</th>
                      <th class="right">Age</th>
                    </tr>
                  </thead>
                  <tbody>
                    {page.rows.map((row) => (
                      <tr key={row.name}>
                        <td>
                          <A to={`/preview/${row.name}`}>{row.name}</A>
                        </td>
                        <td>
                          <Phase value={row.phase} />
                        </td>
                        <td class="break">{row.change}</td>
                        <td class="break">{row.verdict}</td>
                        <td class="right muted">
                          <Time at={row.created} />
                        </td>
                      </tr>
                    ))}
                  </tbody>
                </table>
              </div>
            ) : page.served ? (
              <Empty icon="preview" title="Nothing has been previewed" commands={["planform preview -f DIR"]}>
                A preview runs a change beside what runs now, over the whole fleet, and shows the difference.
              </Empty>
            ) : (
              <Empty icon="preview" title="This control plane knows no previews" commands={["planform render xr.yaml composition.yaml"]}>
                They are planform's own.
              </Empty>
            )}
          </Card>
        )}
      </Screen>
    </>
  );
}

export function PreviewScreen({ name }: { name: string }) {
  const loaded = useLive<PreviewDetail>(`preview ${name}`, (abort) => get(path("previews", name), abort), ["previews"]);
  return (
    <>
      <Crumbs items={[["Previews", "/previews"], [name, ""]]} />
      <Screen loaded={loaded}>{(value) => <Detail value={value} again={loaded.again} />}</Screen>
    </>
  );
}

function Detail({ value, again }: { value: PreviewDetail; again: () => void }) {
  const { row, summary } = value;
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(value.markdown);
      say("Copied as Markdown.");
    } catch {
      say("The browser did not let the page copy.");
    }
  };
  const tiles: [string, string, string][] = [
    ["unchanged", "unchanged", ""],
    ["changed", "changed", "tone-accent"],
    ["creates", "create something", "tone-accent"],
    ["deletes", "delete something", "tone-bad"],
    ["recreates", "recreate something", "tone-bad"],
    ["failed", "would fail", "tone-bad"],
    ["invalid", "would be invalid", "tone-bad"],
    ["mended", "would be mended", "tone-good"],
    ["drifting", "drift anyway", "tone-warn"],
    ["unstable", "unstable", "tone-warn"],
    ["notPreviewed", "not previewed", "tone-warn"],
    ["pinned", "pinned, left alone", "tone-idle"],
  ];
  return (
    <>
      <div class="title">
        <h1>{row.verdict || row.name}</h1>
        <Phase value={row.phase} />
        <span class="sub break">
          {row.change}, <Time at={row.created} suffix=" ago" />
        </span>
        <span class="grow" />
        <button type="button" class="button" onClick={copy}>
          <Icon name="copy" />
          Copy as Markdown
        </button>
        <Actions actions={value.actions} of={{ kind: "Preview", name: row.name, done: again }} />
      </div>
      <div class="tiles">
        {tiles
          .filter(([key]) => summary[key] || key === "unchanged" || key === "changed" || key === "deletes")
          .map(([key, label, tone]) => (
            <div class="tile" key={key}>
              <b>{count(summary[key] ?? 0)}</b>
              <span class={summary[key] ? tone : ""}>{label}</span>
            </div>
          ))}
      </div>
      <div class="split">
        <div class="stack">
          {value.reportsNote && (
            <Banner tone="info" icon="info">
              {value.reportsNote}
            </Banner>
          )}
          {value.classes.map((each) => (
            <ClassCard key={each.id} value={each} />
          ))}
          {value.moreClasses > 0 && <p class="muted">and {many(value.moreClasses, "more class")} in the report</p>}
          {!value.classes.length && row.phase === "Complete" && (
            <Card title="No change" flush>
              <Empty icon="ready" title="Nothing would change" />
            </Card>
          )}
        </div>
        <div class="stack">
          {Object.keys(value.blastKinds).length > 0 && (
            <Card title="What it touches" side={<span class="small muted">{many(value.blastNamespaces, "namespace")}</span>}>
              <Treemap label="Objects by kind" sizes={Object.entries(value.blastKinds)} />
            </Card>
          )}
          {Object.keys(value.blastTeams).length > 0 && (
            <Card title="Whose">
              <div class="legend">
                {Object.entries(value.blastTeams).map(([team, size]) => (
                  <span key={team}>
                    {team} <b class="num">{size}</b>
                  </span>
                ))}
              </div>
            </Card>
          )}
          <Listed title="Not previewed" items={value.notPreviewed.map((each) => [each.xr, each.link, each.reason])} />
          <Listed title="Would drift without the change, too" items={value.drifting.map((xr) => [xr, "", ""])} />
          <Listed title="Unstable: two runs differ" items={value.unstable.map((xr) => [xr, "", ""])} />
          <Card title="Conditions" flush>
            <Conditions items={value.conditions} none="It has not begun." />
          </Card>
          <Card title="From a terminal">
            {value.actions.map((each) => (
              <Command key={each.action} text={each.command} />
            ))}
          </Card>
        </div>
      </div>
    </>
  );
}

function ClassCard({ value }: { value: ChangeClass }) {
  return (
    <Card
      title={
        <span class="row wrap">
          {value.risk ? <Phase value="Failed" label={value.risk} /> : <Phase value="Running" label="Changes" />}
          <span class="break">{value.change}</span>
        </span>
      }
      side={<span class="badge">{many(value.xrs, "XR")}</span>}
      flush
    >
      {value.diff && <UnifiedDiff text={value.diff} label={`Diff of ${value.change}`} />}
      {value.examples.length > 0 && (
        <div class="body row wrap small">
          <span class="muted">for example</span>
          {value.examples.map((each) => (each.link ? <A key={each.name} to={each.link}>{each.name}</A> : <span key={each.name} class="badge">{each.name}</span>))}
        </div>
      )}
    </Card>
  );
}

function Listed({ title, items }: { title: string; items: [string, string, string][] }) {
  if (!items.length) return null;
  return (
    <Card title={title} flush>
      <ul class="conditions">
        {items.map(([name, link, why]) => (
          <li key={name}>
            {link ? <A to={link}>{name}</A> : <b>{name}</b>}
            {why && <p>{why}</p>}
          </li>
        ))}
      </ul>
    </Card>
  );
}
