// The style sheet of the report's page. Colours are defined once for light and once for dark mode. Wide
// tables scroll in their own boxes; plots share a row if there is room for two.
#pragma once

inline const char* const page_style = R"(
:root {
  color-scheme: light dark;
  --back: #f4f5f7; --card: #ffffff; --text: #1d2229; --quiet: #5c6673; --line: #dde1e7; --stripe: #f8f9fb;
  --link: #1f62b8; --bad: #b3261e; --bad-back: #fdeeec;
}
@media (prefers-color-scheme: dark) {
  :root {
    --back: #13161b; --card: #1b2027; --text: #e5e8ec; --quiet: #9aa5b3; --line: #303843; --stripe: #20262e;
    --link: #7db3f5; --bad: #ff9d94; --bad-back: #3a1f1e;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; scroll-behavior: smooth; }
body {
  margin: 0; background: var(--back); color: var(--text);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
}
main { max-width: 1120px; margin: 0 auto; padding: 40px 20px 64px; }
h1, h2, h3 { line-height: 1.25; text-wrap: balance; overflow-wrap: anywhere; }
h1 { font-size: 32px; margin: 0; letter-spacing: -0.01em; }
h2 { font-size: 23px; margin: 0; }
h3 { font-size: 16px; margin: 0; }
p { margin: 6px 0 0; overflow-wrap: anywhere; }
a { color: var(--link); }
.quiet { color: var(--quiet); }
.kicker { color: var(--quiet); font-size: 14px; font-weight: 600; margin: 0 0 4px; }
nav { display: flex; flex-wrap: wrap; gap: 6px 18px; margin-top: 14px; font-size: 15px; }
section { margin-top: 52px; scroll-margin-top: 16px; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; min-width: 0; }
.more { color: var(--quiet); font-size: 13px; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 400px), 1fr)); gap: 16px;
  margin-top: 18px; }
figure { margin: 0; padding: 14px 16px 12px; max-width: 540px; }
figure svg { display: block; width: 100%; height: auto; margin-top: 8px; }
figure svg text { fill: var(--text); }
figure svg .axis { stroke: var(--quiet); }
figure svg .gridline { stroke: var(--line); }
.legend { display: flex; flex-wrap: wrap; gap: 2px 16px; margin: 6px 0 0; padding: 0; list-style: none;
  font-size: 14px; }
.legend li { display: flex; align-items: center; gap: 6px; overflow-wrap: anywhere; }
.legend svg { width: 20px; height: 10px; margin: 0; flex: none; }
.tables { display: flex; flex-wrap: wrap; align-items: flex-start; gap: 16px; margin-top: 16px; }
.tables details { padding: 12px 16px; max-width: 100%; min-width: min(100%, 532px); }
summary { cursor: pointer; font-weight: 650; overflow-wrap: anywhere; }
summary .quiet { font-weight: 400; }
.wide { overflow-x: auto; margin: 10px -16px 0; padding: 0 16px; }
.card > .wide { margin: 0; padding: 8px 16px; }
table { border-collapse: collapse; font-size: 14px; font-variant-numeric: tabular-nums; line-height: 1.4; }
th, td { padding: 5px 10px; text-align: right; white-space: nowrap; vertical-align: bottom; }
th:first-child, td:first-child { padding-left: 8px; }
th { font-weight: 600; border-bottom: 2px solid var(--line); }
th small { display: block; font-weight: 400; color: var(--quiet); font-size: 12.5px; }
td { border-bottom: 1px solid var(--line); }
tbody tr:nth-child(even) { background: var(--stripe); }
tbody tr:last-child td { border-bottom: none; }
details .note { width: 0; min-width: 100%; color: var(--quiet); font-size: 14.5px; margin-top: 10px; }
.t { text-align: left; }
.bad {
  margin-top: 14px; padding: 10px 14px; border-radius: 8px; background: var(--bad-back); color: var(--bad);
}
@media (max-width: 600px) {
  main { padding: 24px 14px 48px; }
  h1 { font-size: 26px; }
  section { margin-top: 40px; }
}
@media print { details::details-content { content-visibility: visible; } }
)";
