"""How the page of a space looks, and the script that lights up a group; without it the page is whole."""

STYLE = """
:root{--ink:#1c2126;--mild:#5b646d;--paper:#fff;--soft:#f4f5f2;--line:#d5d8d3;--fix:#c4c8c4;--fix2:#e3e6e2;
--c0:#0072b2;--c1:#e69f00;--c2:#009e73;--c3:#cc79a7;--c4:#56b4e9;--c5:#d55e00;--c6:#f0e442;--c7:#882255;
--on0:#fff;--on7:#fff;color-scheme:light dark}
@media (prefers-color-scheme:dark){:root{--ink:#e6e8e4;--mild:#a0a8ad;--paper:#15181b;--soft:#1e2226;--line:#3a4046;
--fix:#4a5157;--fix2:#2e3338;--c0:#3d97d3;--c7:#ab4479;--on0:#14171a}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;text-size-adjust:100%}
body{margin:0 auto;max-width:68rem;padding:1.5rem 1.25rem 4rem;background:var(--paper);color:var(--ink);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;overflow-wrap:anywhere}
h1{font-size:1.55rem;line-height:1.25;margin:0 0 .3rem}
h2{font-size:1.15rem;margin:2.4rem 0 .3rem}
h3{font-size:1rem;margin:0 0 .4rem}
h4{font-size:.85rem;margin:0 0 .1rem;font-weight:600;color:var(--mild)}
p{margin:.3rem 0 .8rem;max-width:46rem}
small{color:var(--mild);font-size:.8rem;font-weight:400}
.lead{color:var(--mild)}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(10rem,1fr));gap:.7rem;margin:1.1rem 0 0;padding:0}
.facts>div{background:var(--soft);border-radius:8px;padding:.65rem .85rem}
.facts dt{color:var(--mild);font-size:.8rem}
.facts dd{margin:0;font-size:1.05rem;line-height:1.35;font-weight:600;font-variant-numeric:tabular-nums}
.facts dd small{display:block}
.meter{display:flex;height:8px;border-radius:4px;overflow:hidden;margin:.35rem 0 .2rem}
.meter .fixed{min-width:0}
.meter i:first-child{background:var(--c2)}
.key{display:flex;flex-wrap:wrap;gap:.4rem 1.3rem;list-style:none;margin:.2rem 0 1rem;padding:0;font-size:.85rem}
.key li{display:flex;align-items:center;gap:.45rem}
.key .s,.key .s.fixed:empty{flex:none;min-width:2.2rem;height:19px;border-radius:3px}
.stage{border:1px solid var(--line);border-radius:10px;padding:.8rem .9rem;margin:0 0 .8rem}
.block{position:relative;padding-left:.95rem;margin:.55rem 0}
.block::before{content:"";position:absolute;left:0;top:.2rem;bottom:.2rem;width:.45rem;border:2px solid var(--line);
border-right:0;border-radius:4px 0 0 4px}
.block.absent::before{border-style:dashed;border-color:var(--mild)}
.badge{font-size:.75rem;font-weight:400;white-space:nowrap;margin-left:.35rem}
.row{display:grid;grid-template-columns:19.5rem minmax(0,1fr);gap:.2rem 1rem;padding:.3rem 0}
.row+.row{border-top:1px solid var(--soft)}
.stage>.row{padding-left:.95rem}
.stage>.row+.row{border:0}
.what{font-size:.9rem;line-height:1.3}
.what b{display:block;font-weight:600}
.what small{display:inline-block;margin-right:.6rem;font-variant-numeric:tabular-nums}
.line{display:flex;align-items:center;gap:.5rem}
.line+.line,.why+.line{margin-top:3px}
.line i{flex:none;width:2.7rem;font-size:.75rem;font-style:normal;color:var(--mild)}
.track{flex:1;display:flex;align-items:center;gap:.45rem;min-width:0;padding-right:3.4rem}
.track>span{flex:none;white-space:nowrap;font-size:.78rem;font-variant-numeric:tabular-nums}
.bar{flex:none;display:flex;gap:1px;min-width:min-content;height:19px;border-radius:3px;overflow:hidden}
.s{flex:1 1 0;display:flex;align-items:center;justify-content:center;padding:0 3px;color:#14171a;text-decoration:none;
font-size:.72rem;line-height:19px;font-weight:600;font-variant-numeric:tabular-nums;overflow-wrap:normal;
white-space:nowrap;transition:opacity .12s}
.s:empty{padding:0;min-width:2px}
.s em{font-style:normal;background:var(--paper);color:var(--ink);border-radius:6px;padding:0 5px;line-height:13px}
.fixed,.s.fixed:empty{min-width:6px;background:repeating-linear-gradient(135deg,var(--fix) 0 3px,var(--fix2) 3px 6px)}
.chip{display:inline-flex;flex:none;min-width:1.7rem;border-radius:3px;vertical-align:middle}
.chip.none{background:none;color:var(--ink);border:1px dashed var(--mild);line-height:17px}
.c0{background:var(--c0);color:var(--on0)}.c1{background:var(--c1)}.c2{background:var(--c2)}.c3{background:var(--c3)}
.c4{background:var(--c4)}.c5{background:var(--c5)}.c6{background:var(--c6)}.c7{background:var(--c7);color:var(--on7)}
.why{margin:.1rem 0 .1rem 3.2rem;font-size:.75rem;line-height:1.3;color:var(--mild)}
.fold{margin:.5rem 0;border-radius:8px;background:var(--soft);padding:.45rem .8rem}
.fold .row+.row{border-color:var(--line)}
summary{cursor:pointer;font-size:.88rem}
table{border-collapse:collapse;width:100%;font-size:.86rem;margin:.6rem 0}
th{text-align:left;color:var(--mild);font-weight:500;font-size:.8rem}
th,td{padding:.35rem .7rem .35rem 0;vertical-align:top;border-bottom:1px solid var(--line)}
.kind{white-space:nowrap}
.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
td a:not(.s){color:inherit}
td:nth-child(2){min-width:11rem}
.n:nth-child(5){padding-right:1.3rem}
tr:target,.row:target{background:var(--soft);outline:2px solid var(--mild);outline-offset:2px}
dl.pins dt{font-weight:600;font-size:.9rem}
dl.pins dd{margin:0 0 .7rem;font-size:.86rem;color:var(--mild)}
footer{margin-top:2.5rem;color:var(--mild);font-size:.8rem}
@media (max-width:700px){
body{padding:1.1rem .8rem 3rem}
.stage{padding:.65rem .6rem}
.row{grid-template-columns:minmax(0,1fr);padding:.45rem 0}
.what b{display:inline;margin-right:.6rem}
.stage>.row{padding-left:.75rem}
.track{padding-right:2.9rem}
.block{padding-left:.75rem}
table,tbody,tr{display:block}
thead{display:none}
tr{border-bottom:1px solid var(--line);padding:.5rem 0}
td{display:block;border:0;padding:.05rem 0}
td.h{display:inline-block;min-width:0;padding-right:.8rem;text-align:left}
td[data-l]::before{content:attr(data-l) " ";color:var(--mild)}
}
@media print{.s,.fixed,.meter{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
"""

SCRIPT = """
if(matchMedia("(hover:hover)").matches){
const lit=document.head.appendChild(document.createElement("style"));
const show=e=>{const at=e.target.closest("[data-g]");
const others=at?at.dataset.g.split(" ").map(n=>`:not([data-g~="${n}"])`).join(""):"";
lit.textContent=at?`.bar .s${others}{opacity:.18}`:""};
addEventListener("pointerover",show);addEventListener("focusin",show)}
"""
