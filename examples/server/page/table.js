// Words for times, and tables that are written again and again.
/** Time of day to the millisecond. */
export const clock = (t) => {
  const date = new Date(t);
  return `${date.toLocaleTimeString("en-GB")}.${String(date.getMilliseconds()).padStart(3, "0")}`;
};
export const seconds = (s) => `${s.toFixed(1)} s`;
export const span = (s) => (s % 3600 === 0 ? `${s / 3600} h` : s % 60 === 0 ? `${s / 60} min` : `${s} s`);

/** Writes rows, each a list of cells; a cell is a text, or a text and a class. The first is the head of its row. */
export function rows(id, list, empty) {
  const body = document.getElementById(id);
  const width = body.parentElement.tHead.rows[0].cells.length;
  const wanted = list.length ? list : [[[empty, "empty"]]];
  while (body.rows.length > wanted.length) body.deleteRow(-1);
  wanted.forEach((cells, index) => {
    const row = body.rows[index] ?? body.insertRow();
    while (row.cells.length > cells.length) row.deleteCell(-1);
    cells.forEach((cell, column) => {
      const [text, name] = Array.isArray(cell) ? cell : [cell, ""];
      const place = row.cells[column] ?? row.appendChild(document.createElement(column ? "td" : "th"));
      if (!column) place.scope = "row";
      if (place.textContent !== String(text)) place.textContent = text;
      if (place.className !== name) place.className = name;
      place.colSpan = list.length ? 1 : width;
    });
  });
}
