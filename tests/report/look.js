// look.js - runs within a copy of the report (browser.t) and replaces it by what is wrong with how it looks, a line each.
addEventListener("load", () => {
    const found = [], round = x => Math.round(x), all = (of, what) => [...of.querySelectorAll(what)];
    const light = css => {
        const part = css.match(/[\d.]+/g).slice(0, 3).map(x => x / 255).map(x => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
        return 0.2126 * part[0] + 0.7152 * part[1] + 0.0722 * part[2];
    };
    const contrast = (x, y) => (Math.max(light(x), light(y)) + 0.05) / (Math.min(light(x), light(y)) + 0.05);
    const over = (css, alpha, ground) => "rgb(" + css.match(/[\d.]+/g).slice(0, 3).map((x, i) => x * alpha + ground.match(/[\d.]+/g)[i] * (1 - alpha)) + ")";
    const paper = getComputedStyle(document.body).backgroundColor, wide = document.scrollingElement;
    if (wide.scrollWidth > innerWidth + 1) found.push(`the page is ${wide.scrollWidth} wide, the window ${innerWidth}`);
    let texts = 0;
    for (const svg of all(document, "figure svg")) {
        const figure = svg.closest("figure").id, size = svg.getBoundingClientRect(), boxes = [];
        for (const text of all(svg, "text")) {
            const r = text.getBoundingClientRect(), said = text.textContent;
            texts++;
            if (r.left < size.left - 1 || r.right > size.right + 1 || r.top < size.top - 1 || r.bottom > size.bottom + 1)
                found.push(`${figure}: "${said}" reaches out of the drawing`);
            for (const b of boxes)
                if (Math.min(r.right, b.r.right) - Math.max(r.left, b.r.left) > 0.5 && Math.min(r.bottom, b.r.bottom) - Math.max(r.top, b.r.top) > 0.5)
                    found.push(`${figure}: "${said}" stands on "${b.said}"`);
            boxes.push({ r, said });
            const around = text.parentNode.querySelector(":scope > g > rect, :scope > rect"), ink = getComputedStyle(text);
            let ground = paper;
            if (around && text.parentNode !== svg) {
                const b = around.getBoundingClientRect(), under = all(text.parentNode, ":scope > g:not(.paper) > rect")[0];
                if (r.left < b.left || r.right > b.right || r.bottom > b.bottom + 1) found.push(`${figure}: "${said}" is wider than its box`);
                if (under) ground = over(getComputedStyle(under).color, +(under.getAttribute("fill-opacity") || 1), paper);
                else if (/^#/.test(around.getAttribute("fill"))) ground = getComputedStyle(around).fill;
            }
            if (contrast(ink.fill, ground) < 4.5) found.push(`${figure}: "${said}" has a contrast of ${contrast(ink.fill, ground).toFixed(2)}`);
        }
        for (const line of all(svg, "g[class^=c][stroke]"))
            if (contrast(getComputedStyle(line).color, paper) < 3) found.push(`${figure}: a line of ${line.getAttribute("class")} has too little contrast`);
    }
    for (const e of all(document, "p, td, th, dt, dd, h1, h2, figcaption"))
        if (contrast(getComputedStyle(e).color, paper) < 4.5) found.push(`${e.tagName}: too little contrast`);
    const kind = light(paper) > 0.5 ? "light" : "dark", figures = all(document, "figure").length;
    document.title = "";
    document.documentElement.textContent = [`LOOK ${kind} ${figures} figures ${texts > figures ? "with texts" : "without"}`, ...new Set(found)].map(x => `LOOK ${x}`).join("\n") + "\n";
});
