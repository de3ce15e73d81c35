"use strict";
(() => {
  const root = document.documentElement;
  const byId = (id) => document.getElementById(id);
  const panel = JSON.parse(byId("data-panel").textContent).panel;

  byId("theme").addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });
  addEventListener("beforeprint", () => {
    for (const part of document.querySelectorAll("details")) part.open = true;
  });
  if (!panel) return;

  const policy = panel.policy;
  const N_NEAREST = 5;

  // JSON holds infinite numbers as text.
  for (const tree of policy.trees) tree.t = tree.t.map(Number);
  for (const rule of policy.forbidden) for (const side of ["low", "high"]) rule[side] = rule[side].map(([j, x]) => [j, Number(x)]);

  /* From table columns to features; NaN means missing. */

  /* Microseconds since 1970. */
  const pointOf = (text) => {
    const found = /^(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,6}))?)?)?$/.exec(String(text));
    if (!found) return NaN;
    const [year, month, day, hour, minute, second] = found.slice(1, 7).map((part) => Number(part || 0));
    const point = new Date(0);
    point.setUTCFullYear(year, month - 1, day);
    point.setUTCHours(hour, minute, second);
    const right = point.getUTCMonth() === month - 1 && point.getUTCDate() === day && hour < 24 && minute < 60 && second < 60;
    if (!right) return NaN;
    return point.getTime() * 1000 + Number((found[7] || "").padEnd(6, "0"));
  };

  const write = (column, value, x) => {
    if (value === null || value === undefined || Number.isNaN(value)) return;
    if (column.kind === "number") x[column.start] = Number(value);
    else if (column.kind === "boolean") x[column.start] = value ? 1 : 0;
    else if (column.kind === "date") x[column.start] = pointOf(value);
    else if (column.kind === "codes") x[column.start] = value;
    else for (let i = 0; i < column.width; i += 1) x[column.start + i] = i === value ? 1 : 0;
  };

  /* values: one per column of the panel; a category is given by its index. */
  const featuresOf = (values) => {
    const x = new Float64Array(panel.n_features).fill(NaN);
    panel.columns.forEach((column, i) => write(column, values[i], x));
    return x;
  };

  /* From features to the decision. */

  const barredAt = (x) => {
    const barred = new Set();
    const fired = [];
    for (const rule of policy.forbidden) {
      const inside = (j, good) => (Number.isNaN(x[j]) ? rule.if_missing : good);
      if (rule.low.every(([j, b]) => inside(j, x[j] >= b)) && rule.high.every(([j, b]) => inside(j, x[j] <= b))) {
        fired.push(rule.text);
        for (const a of rule.actions) barred.add(a);
      }
    }
    return { barred, fired };
  };

  const walk = (tree, x) => {
    const path = [];
    let node = 0;
    while (tree.f[node] >= 0) {
      const value = x[tree.f[node]];
      const left = Number.isNaN(value) ? tree.m[node] === 1 : value <= tree.t[node];
      path.push([node, left]);
      node = tree.c[node] + (left ? 0 : 1);
    }
    return { path, leaf: node, ranking: policy.rankings[tree.c[node]] };
  };

  const firstOf = (actions, barred) => actions.find((a) => !barred.has(a));

  const largest = (numbers, barred) => {
    let best = -1;
    numbers.forEach((number, a) => {
      if (!barred.has(a) && (best < 0 || number > numbers[best])) best = a;
    });
    return best;
  };

  const decideFeatures = (x) => {
    const lacking = policy.needed.find((j) => Number.isNaN(x[j]));
    if (lacking !== undefined) {
      const column = panel.columns.find((c) => c.start <= lacking && lacking < c.start + c.width);
      return { action: null, error: "The policy cannot decide when " + column.name + " is missing." };
    }
    const { barred, fired } = barredAt(x);
    const answer = { error: null, fired, barred: [...barred], votes: null, scores: null, path: null, leaf: null };
    if (policy.scores) {
      const { origin, unit, weights } = policy.scores;
      const z = origin.map((o, j) => (x[j] - o) / unit[j]);
      answer.scores = weights.map((row) => z.reduce((sum, value, j) => sum + value * row[j], 0) + row[z.length]);
      answer.index = largest(answer.scores, barred);
    } else if (policy.trees.length === 1) {
      const { path, leaf, ranking } = walk(policy.trees[0], x);
      Object.assign(answer, { path, leaf, index: firstOf(ranking, barred) ?? -1 });
    } else {
      answer.votes = panel.actions.map(() => 0);
      for (const tree of policy.trees) {
        const vote = firstOf(walk(tree, x).ranking, barred);
        if (vote !== undefined) answer.votes[vote] += 1;
      }
      answer.index = largest(answer.votes, new Set());
    }
    if (answer.index < 0) return { ...answer, action: null, error: "The rules allow no action in this state." };
    answer.action = panel.actions[answer.index];
    return answer;
  };

  const LONGEST = 300;
  const refused = (error) => ({ action: null, index: null, error });
  const placeOf = (column, value) => {
    const letters = [...String(value)];
    const cut = letters.length > LONGEST ? letters.slice(0, LONGEST - 1).join("") + "…" : String(value);
    const found = column.values.find(([, word]) => word === value) || column.values.find(([, word]) => String(word) === cut);
    const several = letters.length > LONGEST && column.values.some(([, word]) => String(word).startsWith(cut + " ("));
    return found && !several ? found[0] : undefined;
  };
  /* Parse a value for a column of the panel: returns {value}, or {error} if it is not valid. */
  const understood = (column, value) => {
    if (value === null || value === undefined || Number.isNaN(value)) return { value: null };
    if (column.values) {
      const place = placeOf(column, value);
      return place === undefined ? { error: column.name + " must be one of the values in the list; got " + String(value).slice(0, 80) + "." } : { value: place };
    }
    if (column.kind === "date") return Number.isNaN(pointOf(value)) ? { error: column.name + " must be a date such as 2024-05-31." } : { value };
    if (column.kind === "boolean") return value === true || value === false || value === 0 || value === 1 ? { value } : { error: column.name + " must be true or false." };
    return typeof value === "number" && Number.isFinite(value) ? { value } : { error: column.name + " must be a number." };
  };

  /* The documented entry point. Takes columns by name, or a list in the order of capiReport.columns; null means missing,
     categories are given by name, dates as ISO text. Returns {action, index, error, votes, scores, path, fired}. */
  const decide = (columns) => {
    const values = panel.columns.map((column, i) => {
      const own = Array.isArray(columns) ? i < columns.length : Object.prototype.hasOwnProperty.call(columns, column.name);
      return understood(column, own ? columns[Array.isArray(columns) ? i : column.name] : null);
    });
    const wrong = values.find((found) => found.error);
    return wrong ? refused(wrong.error) : decideFeatures(featuresOf(values.map((found) => found.value)));
  };

  /* Controls. */

  const made = (tag, attributes, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (name === "text") element.textContent = value;
      else element.setAttribute(name, value);
    }
    element.append(...children);
    return element;
  };
  const shown = (x) => {
    if (!Number.isFinite(x)) return "–";
    const size = Math.abs(x);
    const digits = size !== 0 && (size < 1e-4 || size >= 1e9) ? x.toExponential(3) : x.toLocaleString("en-GB", { maximumSignificantDigits: 5 });
    return digits.replaceAll("-", "\u2212");
  };

  const numberControl = (column, id) => {
    const { low, high, step, log } = column;
    const steps = log ? 1000 : Math.max(1, Math.round((high - low) / step));
    const slider = made("input", { type: "range", min: 0, max: steps, step: 1, id: id + "-range", "aria-label": column.name });
    const box = made("input", { type: "number", step: "any", id: id + "-value", "aria-label": column.name + ", as a number" });
    const toPlace = (x) => steps * (log ? (Math.log(x) - Math.log(low)) / (Math.log(high) - Math.log(low)) : (x - low) / (high - low));
    const toNumber = (place) => {
      if (place === steps) return high;
      if (log) return Number(Math.exp(Math.log(low) + (Math.log(high) - Math.log(low)) * (place / steps)).toPrecision(3));
      const x = low + place * step;
      return step >= 1 || Math.abs(x) > 1e10 ? x : Number(x.toPrecision(12));
    };
    const follow = () => {
      const x = Number(box.value);
      if (box.value !== "") slider.value = log && !(x > 0) ? 0 : toPlace(x);
      slider.setAttribute("aria-valuetext", box.value === "" ? "no number" : box.value);
    };
    slider.addEventListener("input", () => {
      box.value = String(toNumber(Number(slider.value)));
      slider.setAttribute("aria-valuetext", box.value);
    });
    box.addEventListener("input", follow);
    const ends = made("div", { class: "ends", "aria-hidden": "true" }, made("span", { text: shown(low) }), made("span", { text: shown(high) }));
    return {
      parts: [made("div", { class: "set" }, slider, box), ends],
      get: () => (box.value === "" || !Number.isFinite(Number(box.value)) ? undefined : Number(box.value)),
      set: (x) => { box.value = String(x); follow(); },
    };
  };

  const dateControl = (column, id) => {
    const kind = column.whole_days ? { type: "date" } : { type: "datetime-local", step: "1" };
    const box = made("input", { ...kind, id: id + "-value", "aria-label": column.name });
    return { parts: [box], get: () => (box.value === "" ? undefined : box.value), set: (text) => { box.value = text; } };
  };

  const wordOf = (entry) => (entry.length > 2 ? entry[2] : String(entry[1]));
  const choiceControl = (column, id) => {
    const list = made("select", { id: id + "-value", "aria-label": column.name });
    for (const entry of column.values) list.append(made("option", { value: entry[0], text: wordOf(entry) }));
    const more = column.n_not_listed ? [made("p", { class: "small", text: column.n_not_listed + " more values do not fit on this page." })] : [];
    return { parts: [list, ...more], get: () => (list.value === "" ? undefined : Number(list.value)), set: (place) => { list.value = String(place); } };
  };

  const booleanControl = (column, id) => {
    const box = made("input", { type: "checkbox", id: id + "-value" });
    const label = made("label", { class: "check" }, box, made("span", { text: "true" }));
    box.setAttribute("aria-label", column.name);
    return { parts: [label], get: () => box.checked, set: (value) => { box.checked = value; } };
  };

  const makers = { number: numberControl, date: dateControl, boolean: booleanControl };
  const controls = panel.columns.map((column, i) => {
    const id = "c" + i;
    const control = (makers[column.kind] || choiceControl)(column, id);
    const name = made("span", { text: column.name, title: column.name });
    const head = made("div", { class: "label" }, name);
    const field = made("fieldset", { class: "control", id, "aria-label": column.name }, head, ...control.parts);
    let missing = null;
    if (column.missing) {
      missing = made("input", { type: "checkbox", id: id + "-missing" });
      head.append(made("label", { class: "check" }, missing, made("span", { text: "missing" })));
      missing.addEventListener("input", () => dim(field, missing));
    }
    byId("columns").append(field);
    return {
      get: () => (missing && missing.checked ? null : control.get()),
      set: (value) => {
        if (missing) {
          missing.checked = value === null;
          dim(field, missing);
        }
        if (value !== null) control.set(value);
      },
    };
  });
  function dim(field, missing) {
    for (const part of field.querySelectorAll("input, select")) if (part !== missing) part.disabled = missing.checked;
  }

  /* Answers. */

  const many = panel.actions.length > 8;
  const chip = (a) => made("span", { class: "chip a" + (a % 16) + (many ? " numbered" : ""), "aria-hidden": "true", text: many ? String(a + 1) : "" });
  const valueText = (x, feature) => {
    const column = panel.columns.find((c) => c.start <= feature && feature < c.start + c.width);
    return column ? caseText(column, (j) => x[j]) : "";
  };
  const caseText = (column, at) => {
    const first = at(column.start);
    if (Number.isNaN(first)) return "missing";
    if (column.kind === "number") return shown(first);
    if (column.kind === "boolean") return first ? "true" : "false";
    if (column.kind === "date") {
      const text = new Date(Math.round(first / 1000)).toISOString();
      return column.whole_days ? text.slice(0, 10) : text.slice(0, 16).replace("T", " ");
    }
    let place = first;
    if (column.kind === "one-hot") for (let i = 0; i < column.width; i += 1) if (at(column.start + i) === 1) place = i;
    const found = column.values.find(([i]) => i === place);
    return found ? wordOf(found) : "another";
  };

  const featureName = (j) => {
    const column = panel.columns.find((c) => c.start <= j && j < c.start + c.width);
    const word = column.kind === "one-hot" ? column.values.find(([place]) => place === j - column.start) : null;
    return word ? column.name + "=" + wordOf(word) : column.name;
  };

  const cutText = (feature, cut) => {
    const column = panel.columns.find((c) => c.start === feature);
    return column && column.kind === "date" && Number.isFinite(cut) ? caseText(column, () => cut) : String(cut).replace("-", "\u2212");
  };

  const pathList = (answer, x) => {
    const list = made("ol", { class: "path", "aria-label": "Path through the tree" });
    const tree = policy.trees[0];
    for (const [node, left] of answer.path) {
      const words = panel.words ? panel.words[node][left ? 0 : 1] : featureName(tree.f[node]) + (left ? " ≤ " : " > ") + cutText(tree.f[node], tree.t[node]);
      list.append(made("li", {}, made("span", { class: "words", text: words }), made("span", { class: "faint", text: "here: " + valueText(x, tree.f[node]) })));
    }
    list.append(made("li", { class: "last" }, made("span", { class: "words", text: (answer.path.length ? "so: " : "always: ") + answer.action })));
    return list;
  };

  const barList = (numbers, texts, barred, share) => {
    const list = made("ul", { class: "bars" });
    numbers.forEach((number, a) => {
      const fill = made("span", { class: "share" });
      fill.style.width = (100 * share(number)).toFixed(2) + "%";
      const word = made("span", { class: barred.includes(a) ? "word barred" : "word", text: panel.actions[a], title: panel.actions[a] });
      list.append(made("li", {}, word, made("span", { class: "track" }, fill), made("span", { class: "n", text: texts(number) })));
    });
    return list;
  };

  const reasons = (answer, x) => {
    const parts = [];
    if (answer.votes) {
      parts.push(made("p", { class: "small", text: "Votes of the " + policy.trees.length + " trees" }));
      parts.push(barList(answer.votes, String, answer.barred, (n) => n / policy.trees.length));
    } else if (answer.scores) {
      const low = Math.min(...answer.scores);
      const span = Math.max(...answer.scores) - low || 1;
      parts.push(made("p", { class: "small", text: "Scores: the highest wins" }));
      parts.push(barList(answer.scores, shown, answer.barred, (s) => (s - low) / span));
    } else parts.push(pathList(answer, x));
    for (const text of answer.fired) parts.push(made("p", { class: "small", text: "A rule applies here: " + text }));
    return parts;
  };

  const light = (answer) => {
    for (const part of document.querySelectorAll("[data-node].on, [data-edge].on")) part.classList.remove("on");
    if (!panel.drawn || !answer || !answer.path) return;
    const tree = policy.trees[0];
    const nodes = [0, ...answer.path.map(([node, left]) => tree.c[node] + (left ? 0 : 1))];
    for (const node of nodes) {
      for (const part of document.querySelectorAll('[data-node="' + node + '"], [data-edge="' + node + '"]')) part.classList.add("on");
    }
  };

  const nearest = (x) => {
    const { features, unit, states, actions, rewards } = panel.cases;
    const at = states.map((row, i) => {
      let sum = 0;
      features.forEach((j, k) => {
        const there = row[k] === null ? NaN : row[k];
        if (Number.isNaN(x[j]) !== Number.isNaN(there)) sum += 1;
        else if (!Number.isNaN(there)) sum += ((x[j] - there) / unit[k]) ** 2;
      });
      return [sum, i];
    });
    at.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    const heads = [...panel.columns.map((c) => c.name), "logged action", "reward"];
    const head = made("tr", {}, ...heads.map((text) => made("th", { scope: "col", text, title: text })));
    const body = at.slice(0, N_NEAREST).map(([, i]) => {
      const place = new Map(features.map((j, k) => [j, k]));
      const cell = (j) => (states[i][place.get(j)] === null ? NaN : states[i][place.get(j)]);
      const texts = panel.columns.map((column) => caseText(column, cell));
      return made("tr", {}, ...[...texts, panel.actions[actions[i]], shown(rewards[i])].map((text) => made("td", { text, title: text })));
    });
    return made("table", {}, made("thead", {}, head), made("tbody", {}, ...body));
  };

  const update = () => {
    const values = controls.map((control) => control.get());
    const open = values.findIndex((value) => value === undefined);
    const decision = byId("decision");
    const why = byId("why");
    if (open >= 0) {
      decision.replaceChildren("–");
      why.replaceChildren(made("p", { text: "Set " + panel.columns[open].name + " to see a decision." }));
      light(null);
      return;
    }
    const x = featuresOf(values);
    const answer = decideFeatures(x);
    if (answer.error) {
      decision.replaceChildren("–");
      why.replaceChildren(made("p", { text: answer.error }));
    } else {
      decision.replaceChildren(chip(answer.index), made("span", { class: "words", text: answer.action, title: answer.action }));
      why.replaceChildren(...reasons(answer, x));
    }
    light(answer.error ? null : answer);
    if (panel.cases) byId("case-table").replaceChildren(nearest(x));
  };

  const setAll = (values) => {
    controls.forEach((control, i) => { if (values[i] !== null || panel.columns[i].missing) control.set(values[i]); });
    update();
  };
  const typical = panel.columns.map((column) => column.typical);
  let example = 0;
  byId("typical").addEventListener("click", () => setAll(typical));
  byId("next").addEventListener("click", () => {
    setAll(panel.examples[example % panel.examples.length]);
    example += 1;
  });
  byId("next").hidden = !panel.examples.length;
  byId("controls").addEventListener("input", update);
  byId("controls").addEventListener("submit", (event) => event.preventDefault());
  byId("cases").hidden = !panel.cases;
  byId("try").hidden = false;
  setAll(typical);

  window.capiReport = Object.freeze({
    decide,
    columns: panel.columns.map((column) => column.name),
    actions: panel.actions,
    exact: panel.exact,
  });
})();
