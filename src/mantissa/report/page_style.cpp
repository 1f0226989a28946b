// The style sheet of a page. Colours are variables, with values for a light and a dark screen. Scales differ
// in lightness as well as hue, so that they can be read without seeing red and green.
#include <fmt/format.h>

#include "mantissa/report/page.h"

namespace mantissa::report {
namespace {

constexpr const char* kColourVariables = R"css(
:root{color-scheme:light dark;
--bg:#fbfaf8;--card:#fff;--ink:#1d2127;--soft:#5a626e;--faint:#6b737e;--rule:#e4e2dd;--tint:#f3f1ec;--accent:#1f5f99;
--good:#1a7f5a;--good-bg:#e8f4ee;--warn:#a86200;--warn-bg:#fdf3e0;--bad:#b3261e;--bad-bg:#fbeae8;--unknown:#6b7280;--unknown-bg:#f0f0ee;
--s0:#0b63a5;--s1:#c4570b;--s2:#12866a;--s3:#a4397f;--s4:#8a6d00;--s5:#3d3f8f;
--c0:#efede8;--c1:#fdeabd;--c2:#fbd48a;--c3:#f7b55c;--c4:#ef9140;--c5:#dd6a2b;--c6:#bf4520;--c7:#93281b;--c8:#5f1215;
--n1:#cfe0f0;--n2:#8fb9dd;--n3:#4486bd;--n4:#12548c;--p0:#efede8;--p1:#fbdcc0;--p2:#f2ad74;--p3:#d6752f;--p4:#93400a;
--f64:#c9d3ee;--f32:#d9e4f6;--tf32:#d5eef0;--bf16:#d5efdc;--f16:#fdeab8;--fp8:#fbd5bd;--block:#efcfe4;
--sub:#fdf0cf;--lost:#ebe8e2;--over:#f9d9d3;--bar:#dce8f4}
@media (prefers-color-scheme:dark){:root{
--bg:#131519;--card:#1b1e24;--ink:#e6e7ea;--soft:#a6adb8;--faint:#9098a5;--rule:#2e333b;--tint:#22262d;--accent:#7db8ec;
--good:#5cc79b;--good-bg:#16291f;--warn:#efb04c;--warn-bg:#2d2413;--bad:#f58a80;--bad-bg:#331b1a;--unknown:#9aa2ae;--unknown-bg:#22262d;
--s0:#62abe8;--s1:#f2954d;--s2:#4fc7a3;--s3:#e389c2;--s4:#d9bb4a;--s5:#a3a6f0;
--c0:#262a31;--c1:#43301c;--c2:#66401d;--c3:#8b531f;--c4:#b06a26;--c5:#d2863a;--c6:#eaa95e;--c7:#f8cd92;--c8:#fff2d6;
--n1:#22384d;--n2:#2f5f8a;--n3:#5797cd;--n4:#b5dcff;--p0:#262a31;--p1:#4a3320;--p2:#89551f;--p3:#d6863a;--p4:#ffd6a6;
--f64:#2f3c66;--f32:#273f5f;--tf32:#1d474b;--bf16:#1f4a31;--f16:#55431a;--fp8:#5c3320;--block:#532a48;
--sub:#3a301b;--lost:#2a2d33;--over:#472320;--bar:#22384d}}
)css";

constexpr const char* kText = R"css(
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;scroll-padding-top:3.5rem}
@media (prefers-reduced-motion:no-preference){html{scroll-behavior:smooth}}
body{margin:0;background:var(--bg);color:var(--ink);font:16px/1.6 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",sans-serif;
font-variant-numeric:tabular-nums}
header,main{max-width:1180px;margin:0 auto;padding:0 24px}
header{padding-top:44px}
h1,h2,h3{line-height:1.25;font-weight:650;letter-spacing:-.01em;overflow-wrap:anywhere}
h1{font-size:clamp(1.6rem,1.2rem + 1.8vw,2.4rem);margin:.15em 0 .2em}
h2{font-size:1.45rem;margin:0 0 .3em}
h3{font-size:1rem;margin:0}
p{margin:0 0 .8em;max-width:74ch;text-wrap:pretty;overflow-wrap:anywhere}
.kicker{color:var(--soft);font-size:.85rem;letter-spacing:.06em;text-transform:uppercase;margin:0}
.kicker b{color:var(--accent);font-weight:650}
.sub,.intro{color:var(--soft);overflow-wrap:anywhere}
a{color:var(--accent)}
code,pre,.mod{font-family:ui-monospace,"SF Mono","Cascadia Mono",Menlo,Consolas,"DejaVu Sans Mono",monospace;font-size:.9em}
.mod{overflow-wrap:anywhere}
sup{font-size:.72em;line-height:0}
nav{position:sticky;top:0;z-index:5;display:flex;gap:4px 22px;overflow-x:auto;padding:10px max(24px,calc((100% - 1180px)/2 + 24px));margin-top:20px;
background:var(--bg);border-bottom:1px solid var(--rule);font-size:.9rem;white-space:nowrap;scrollbar-width:none}
nav a{text-decoration:none;color:var(--soft)}
nav a:hover{color:var(--accent)}
section{margin:56px 0}
.verdict{display:flex;gap:18px;padding:22px 24px;border-radius:12px;margin:22px 0;background:var(--unknown-bg)}
.verdict>*{min-width:0}.verdict .told>p:last-child{margin:0}
.verdict .told{flex:1 1 0}.verdict .aside{flex:0 0 360px}
.verdict .words{font-size:1.15rem;font-weight:650;margin:0 0 .25em}
.verdict.good{background:var(--good-bg)}.verdict.warn{background:var(--warn-bg)}.verdict.bad{background:var(--bad-bg)}
.good .words{color:var(--good)}.warn .words{color:var(--warn)}.bad .words{color:var(--bad)}
.mark{width:30px;height:30px;flex:none;color:var(--unknown);fill:currentColor}
.mark.good{color:var(--good)}.mark.warn{color:var(--warn)}.mark.bad{color:var(--bad)}
.mark .ink{fill:none;stroke:var(--card);stroke-width:2.4;stroke-linecap:round;stroke-linejoin:round}
.facts{display:flex;flex-wrap:wrap;gap:10px 34px;margin:0 0 .9em}
.facts div{min-width:0}
.facts dt{color:var(--faint);font-size:.78rem;line-height:1.3}
.facts dd{margin:0;font-size:.95rem;overflow-wrap:anywhere}
.card,figure{background:var(--card);border:1px solid var(--rule);border-radius:12px;padding:20px 22px;margin:0 0 20px;min-width:0}
.card>:last-child,.card>div>:last-child{margin-bottom:0}
.card{display:grid;grid-template-columns:auto minmax(0,1fr);gap:4px 16px}
.card>*{grid-column:2}.card>.mark{grid-column:1;grid-row:1/span 2;width:24px;height:24px;margin-top:2px}
.card h3{font-size:.82rem;font-weight:600;color:var(--soft);letter-spacing:0}
.card h3 b{color:var(--ink)}
.card .say{font-size:1.06rem;margin-bottom:.9em;overflow-wrap:anywhere}
.card .cure{margin:0 0 .5em;font-weight:600}
.badge{display:inline-block;font-size:.78rem;font-weight:600;padding:1px 9px;border-radius:99px;margin-left:6px;border:1px solid currentColor}
.badge.yes{color:var(--good)}.badge.no{color:var(--soft)}
.cmd{display:flex;align-items:stretch;border:1px solid var(--rule);border-radius:8px;background:var(--tint);overflow:hidden;margin:0 0 .9em;max-width:100%}
.cmd pre{flex:1;min-width:0;margin:0;padding:10px 14px;white-space:pre-wrap;overflow-wrap:anywhere}
.cmd button{font:inherit;font-size:.82rem;border:0;border-left:1px solid var(--rule);background:none;color:var(--accent);padding:0 14px;cursor:pointer}
.cmd button:hover{background:var(--card)}
details{border-top:1px solid var(--rule);margin:0}
details:last-of-type{border-bottom:1px solid var(--rule)}
summary{cursor:pointer;padding:11px 2px;overflow-wrap:anywhere}
summary:hover{color:var(--accent)}
summary small{color:var(--soft);margin-left:8px;font-size:.85rem}
.inside{padding:8px 0 18px}
figure details:first-of-type{margin-top:18px}
.quiet{display:flex;gap:14px;align-items:flex-start}.quiet figcaption{margin:0}.quiet .mark{width:24px;height:24px}
.grid{display:grid;gap:20px;grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr))}
.grid>*{margin:0}
.small{display:grid;gap:22px 26px;grid-template-columns:repeat(auto-fill,minmax(min(100%,290px),1fr))}
.small h4{font-size:.82rem;font-weight:600;margin:0 0 6px;line-height:1.35}
.small h4 span{color:var(--soft);font-weight:400}
.pair{display:grid;gap:20px 30px;grid-template-columns:repeat(auto-fit,minmax(min(100%,400px),1fr));margin-bottom:6px}
.pair h4{font-size:.85rem;font-weight:600;margin:0 0 6px;color:var(--soft)}
.none-line{color:var(--soft);font-size:.92rem;margin:12px 0 0}
.none-line:has(+.scroll),.none-line:has(+details),h3:has(+.scroll){margin-bottom:12px}h3+.none-line{margin-top:0}
)css";

constexpr const char* kCharts = R"css(
figcaption{margin-bottom:16px}section>h3{margin:34px 0 8px}section>.legend{margin:0 0 18px}section>.grid{margin-bottom:20px}
.heat.binades{max-width:760px}
figcaption p{color:var(--soft);font-size:.92rem;margin:.25em 0 0}
.chart{display:grid;grid-template-columns:3.4em minmax(0,1fr);font-size:.75rem;color:var(--soft);line-height:1.2}
.yname{grid-column:1/-1;margin-bottom:8px}
.ylabels{position:relative;grid-column:1}
.ylabels span{position:absolute;right:8px;transform:translateY(50%);white-space:nowrap}
.plot{position:relative;grid-column:2}
.plot svg,.cells svg{display:block;width:100%;height:100%;overflow:visible}
.chart .xlabels,.chart .xname{grid-column:2}
.xlabels{position:relative;height:1.5em;margin-top:7px}
.xlabels span{position:absolute;transform:translateX(-50%);white-space:nowrap}
.xlabels .limit{font-weight:700;color:var(--ink)}
.xname{text-align:center}
svg path,svg rect{vector-effect:non-scaling-stroke}
path.gridline{fill:none;stroke:var(--rule);stroke-width:1}
.line{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}
.dots{fill:none;stroke-width:6;stroke-linecap:round}
.band{opacity:.18}
.line.s0,.dots.s0{stroke:var(--s0)}.line.s1,.dots.s1{stroke:var(--s1)}.line.s2,.dots.s2{stroke:var(--s2)}
.line.s3,.dots.s3{stroke:var(--s3)}.line.s4,.dots.s4{stroke:var(--s4)}.line.s5,.dots.s5{stroke:var(--s5)}
.line.s1{stroke-dasharray:7 3}.line.s2{stroke-dasharray:2 4}.line.s3{stroke-dasharray:9 3 2 3}.line.s4{stroke-dasharray:4 4}.line.s5{stroke-dasharray:12 4}
.band.s0{fill:var(--s0)}.band.s1{fill:var(--s1)}.band.s2{fill:var(--s2)}.band.s3{fill:var(--s3)}.band.s4{fill:var(--s4)}.band.s5{fill:var(--s5)}
.intervals{font-size:.78rem;color:var(--soft);line-height:1.3}
.intervals ul{list-style:none;margin:0;padding:0}.intervals .yname{margin:0 0 6px;font-weight:600}
.intervals li{display:grid;grid-template-columns:minmax(0,1fr) auto;gap:0 10px;padding:4px 0}
.intervals .who{overflow-wrap:anywhere;color:var(--ink)}
.intervals svg{grid-column:1/-1;display:block;width:100%;height:13px;margin-top:3px;overflow:visible}
.intervals path{fill:none;stroke:currentColor;stroke-linecap:round}.intervals .good{color:var(--good)}.intervals .warn{color:var(--warn)}
.intervals .bad{color:var(--bad)}.intervals .unknown{color:var(--unknown)}
.intervals .zero{stroke:var(--faint);stroke-width:1;stroke-dasharray:2 2}.intervals .reach{stroke-width:3;opacity:.45}.intervals .value{stroke-width:9}
.intervals .xlabels{margin-top:2px}.intervals .reading{margin:2px 0 0}
path.at{fill:none;stroke:var(--bad);stroke-width:1;stroke-dasharray:3 3;opacity:.6}
.flags{position:absolute;inset:-9px 0 auto 0;height:9px}
.flags i,.legend .flag{position:absolute;transform:translateX(-50%);border:5px solid transparent;border-top:8px solid var(--bad);border-bottom:0}
.hit rect{fill:transparent}
.hit rect:hover{fill:var(--ink);opacity:.06}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:4px 20px;margin:12px 0 0;padding:0;font-size:.8rem;color:var(--soft)}
.legend li{display:flex;align-items:center;gap:7px}
.legend i{display:inline-block;width:16px;height:12px;border-radius:3px;flex:none}
.legend i:not(.flag,.stroke,.before,.after){box-shadow:inset 0 0 0 1px rgba(128,128,128,.3)}
.legend .band{opacity:.3}.band.s0{background:var(--s0)}.band.s1{background:var(--s1)}.band.s2{background:var(--s2)}.band.s3{background:var(--s3)}.band.s4{background:var(--s4)}.band.s5{background:var(--s5)}
.legend .flag{position:static;transform:none;width:0;height:0;border-radius:0}
.legend .stroke{height:0;border-radius:0;border-top:3px solid}
.stroke.s0{border-color:var(--s0)}.stroke.s1{border-color:var(--s1);border-top-style:dashed}.stroke.s2{border-color:var(--s2);border-top-style:dotted}
.stroke.s3{border-color:var(--s3);border-top-style:dashed}.stroke.s4{border-color:var(--s4);border-top-style:dashed}.stroke.s5{border-color:var(--s5);border-top-style:dashed}
.heat{display:grid;grid-template-columns:max-content minmax(0,1fr);column-gap:9px;font-size:.75rem;color:var(--soft);line-height:1.2}
.rname{text-align:right;margin-bottom:6px}
.rlabels span{display:block;height:var(--row);line-height:var(--row);font-size:11.5px;text-align:right;white-space:nowrap;max-width:9.5em;overflow-x:clip;text-overflow:ellipsis}
.cells path:hover{stroke:var(--ink);stroke-width:1.5}
.c0{fill:var(--c0);background:var(--c0)}.c1{fill:var(--c1);background:var(--c1)}.c2{fill:var(--c2);background:var(--c2)}
.c3{fill:var(--c3);background:var(--c3)}.c4{fill:var(--c4);background:var(--c4)}.c5{fill:var(--c5);background:var(--c5)}
.c6{fill:var(--c6);background:var(--c6)}.c7{fill:var(--c7);background:var(--c7)}.c8{fill:var(--c8);background:var(--c8)}
.n1{fill:var(--n1);background:var(--n1)}.n2{fill:var(--n2);background:var(--n2)}.n3{fill:var(--n3);background:var(--n3)}.n4{fill:var(--n4);background:var(--n4)}
.p0{fill:var(--p0);background:var(--p0)}.p1{fill:var(--p1);background:var(--p1)}.p2{fill:var(--p2);background:var(--p2)}.p3{fill:var(--p3);background:var(--p3)}.p4{fill:var(--p4);background:var(--p4)}
.scale{margin-top:14px;font-size:.75rem;color:var(--soft);display:flex;flex-wrap:wrap;align-items:flex-start;gap:4px 14px}
.scale ol{list-style:none;display:flex;margin:0;padding:0;flex:0 1 620px;min-width:0}
.scale li{flex:1 1 0;min-width:0;text-align:center;white-space:nowrap;line-height:1.3;padding-right:1px}
.scale li i{display:block;height:11px;margin-bottom:3px}
.scale .gap{flex:0 0 auto;padding-left:12px}
.scale .none{border:1px solid var(--rule);width:100%}
rect.sub,.zone.sub{fill:var(--sub);background:var(--sub)}rect.lost,.zone.lost{fill:var(--lost);background:var(--lost)}rect.over,.zone.over{fill:var(--over);background:var(--over)}
path.after{fill:var(--s0)}i.after{background:var(--s0)}
path.before{fill:none;stroke:var(--s1);stroke-width:1.5}i.before{border:2px solid var(--s1)}
.scroll{width:fit-content;max-width:100%;min-width:min(100%,360px);overflow-x:auto;border:1px solid var(--rule);border-radius:10px;background:var(--card);margin:0 0 16px}
table{border-collapse:collapse;width:100%;font-size:.88rem}
th,td{padding:7px 14px;text-align:left;border-bottom:1px solid var(--rule);vertical-align:top;white-space:nowrap;position:relative}
th{font-weight:600;color:var(--soft);font-size:.8rem;background:var(--tint)}
tr:last-child td{border-bottom:0}
td.n,th.n{text-align:right}th{white-space:normal;vertical-align:bottom}
td:first-child{white-space:normal;width:34%;min-width:11rem;overflow-wrap:anywhere}
td .quiet{white-space:normal;min-width:13rem}
.number{color:var(--faint);margin-right:.35em}
.bar{position:absolute;left:6px;bottom:2px;height:3px;background:var(--s0);border-radius:2px;max-width:calc(100% - 12px)}
.fmt{display:inline-block;padding:0 7px;border-radius:5px;font-family:ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace;font-size:.86em}
.f64{background:var(--f64)}.f32{background:var(--f32)}.tf32{background:var(--tf32)}.bf16{background:var(--bf16)}.f16{background:var(--f16)}.fp8{background:var(--fp8)}.block{background:var(--block)}
#tip{position:fixed;z-index:9;max-width:min(340px,calc(100vw - 16px));background:var(--ink);color:var(--bg);font-size:.8rem;line-height:1.4;padding:6px 10px;border-radius:7px;white-space:pre-line;overflow-wrap:anywhere;pointer-events:none}
[hidden]{display:none!important}
@media (max-width:940px){.verdict{flex-wrap:wrap}.verdict .told{flex:1 1 60%}.verdict .aside{flex:1 1 100%}}
@media (max-width:640px){
header,main{padding-left:14px;padding-right:14px}nav{padding:9px 14px}header{padding-top:26px}section{margin:40px 0}
.card,figure{padding:16px 14px}.verdict{padding:18px 16px;gap:12px}.facts{gap:8px 22px}
.scale ol{flex:1 1 auto;flex-wrap:wrap;gap:3px 11px}.scale li,.scale .gap{flex:0 0 auto;display:flex;align-items:center;gap:5px;padding:0}
.scale li i,.scale .none{width:15px;margin:0}.rlabels span{max-width:7em}th,td{padding:6px 10px}
td .mod{display:inline-block;max-width:10rem;white-space:normal}
td:first-child{min-width:8.5rem}td .quiet{min-width:8.5rem;gap:10px}
.cmd{flex-direction:column}.cmd button{border-left:0;border-top:1px solid var(--rule);padding:5px 0}}
@media print{nav,#tip,.cmd button{display:none}.card,figure{break-inside:avoid}}
)css";

}  // namespace

std::string page_style() {
  return fmt::format("{}{}{}", kColourVariables, kText, kCharts);
}

}  // namespace mantissa::report
