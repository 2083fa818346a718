// The style sheet of report.html.
#pragma once

namespace trainyard::cli {

inline constexpr char kReportStyle[] = R"css(
:root { color-scheme: light dark; --page: #f6f7f9; --card: #ffffff; --text: #1c2430; --quiet: #5d6b7e;
  --rule: #e3e7ed; --c0: #2563eb; --c1: #d9480f; --c2: #0b8a5c; --c3: #7c3aed; --c4: #b7791f;
  --c5: #0e8ba0; --c6: #c0266f; --c7: #55606e; }
@media (prefers-color-scheme: dark) { :root { --page: #12161c; --card: #1b212a; --text: #e6eaf0;
  --quiet: #97a3b4; --rule: #2b333f; --c0: #6ea0ff; --c1: #ff8f5a; --c2: #41cf97; --c3: #b394ff;
  --c4: #e8b656; --c5: #4fc6da; --c6: #f27db4; --c7: #a3afbe; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text); line-height: 1.45;
  font: 15px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 20px 16px 48px; }
header { display: flex; flex-wrap: wrap; align-items: baseline; gap: 4px 12px; }
header p { margin: 0; }
h1 { font-size: 26px; margin: 0; }
h2 { font-size: 16px; margin: 0 0 8px; }
.badge { border-radius: 99px; padding: 2px 12px; font-size: 13px; font-weight: 600; color: #fff;
  background: #8a6414; }
.badge.succeeded { background: #0a7a51; }
.badge.failed { background: #c22f2f; }
.quiet { color: var(--quiet); }
.reason { border-left: 4px solid #c22f2f; padding-left: 12px; overflow-wrap: anywhere; }
.tiles { display: flex; flex-wrap: wrap; gap: 12px; margin: 16px 0; }
.tile, .card { background: var(--card); border: 1px solid var(--rule); border-radius: 10px; }
.tile { flex: 1 1 130px; padding: 12px 14px; }
.tile b { display: block; font-size: 22px; font-variant-numeric: tabular-nums; }
.tile span { color: var(--quiet); font-size: 13px; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 420px), 1fr));
  gap: 12px; }
.card { padding: 14px 16px; margin: 0; min-width: 0; }
.wide { margin-top: 12px; }
.card p { margin: 0 0 10px; }
figcaption { font-weight: 600; }
svg { display: block; width: 100%; height: auto; margin-top: 4px; }
.grid { stroke: var(--rule); stroke-width: 1; }
.tick { fill: var(--quiet); font-size: 12px; font-variant-numeric: tabular-nums; }
.line { fill: none; stroke-width: 1.8; stroke-linejoin: round; stroke-linecap: round; }
.dashed { stroke-dasharray: 2 4; }
.faint { stroke-width: 1; opacity: 0.3; }
.c0 { stroke: var(--c0); } .c1 { stroke: var(--c1); } .c2 { stroke: var(--c2); }
.c3 { stroke: var(--c3); } .c4 { stroke: var(--c4); } .c5 { stroke: var(--c5); }
.c6 { stroke: var(--c6); } .c7 { stroke: var(--c7); }
.dot { fill: var(--card); stroke-width: 2; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 14px; color: var(--quiet); font-size: 13px; }
.key { display: inline-block; width: 16px; margin-right: 5px; vertical-align: middle;
  border-top: 3px solid; }
.open { border-top-style: dotted; }
.b0 { border-color: var(--c0); } .b1 { border-color: var(--c1); } .b2 { border-color: var(--c2); }
.b3 { border-color: var(--c3); } .b4 { border-color: var(--c4); } .b5 { border-color: var(--c5); }
.b6 { border-color: var(--c6); } .b7 { border-color: var(--c7); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 14px; font-variant-numeric: tabular-nums; }
th { text-align: left; color: var(--quiet); font-weight: 500; }
th, td { padding: 4px 12px 4px 0; border-bottom: 1px solid var(--rule); vertical-align: top; }
td:first-child { white-space: nowrap; }
.figures td:not(:first-child), .figures th:not(:first-child) { text-align: right; white-space: nowrap; }
tr.warn td { color: var(--c1); }
@media (max-width: 560px) {
  .figures td:not(:first-child), .figures th:not(:first-child) { white-space: normal; }
  th, td { padding-right: 8px; }
  th:last-child, td:last-child { padding-right: 0; }
}
.card .note { margin: 10px 0 0; }
details { margin-top: 10px; }
summary { cursor: pointer; color: var(--quiet); }
dl { display: grid; grid-template-columns: minmax(90px, max-content) 1fr; gap: 4px 16px; margin: 0; }
dt { color: var(--quiet); }
dd { margin: 0; overflow-wrap: anywhere; }
)css";

}  // namespace trainyard::cli
