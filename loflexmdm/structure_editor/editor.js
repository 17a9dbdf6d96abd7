// Connect OpenChemLib's editor with the page: the value of the component is a molfile, both ways.
import { CanvasEditor, Molecule } from "./openchemlib.js";

const POINT = 154; // number of the pseudo-atom R, which marks a point of attachment
const REACH = 20; // most pixels between a click and its atom
const isPoint = number => number === 0 || number === POINT || (number >= 129 && number <= 144); // ?, R, R1 to R16
const PAUSE = 1000; // milliseconds after a change by hand in which answers to earlier ones are late

export function start(element, props, trigger, watch) {
  const place = element.querySelector(".la-canvas");
  const button = element.querySelector("button");
  const editor = new CanvasEditor(place, { initialMode: "molecule" });
  const canvas = place.firstElementChild.shadowRoot.querySelector("div canvas");
  canvas.tabIndex = -1; // the text field is the way in by keyboard
  let last = -PAUSE; // time of the last change by hand

  function describe() {
    const molecule = editor.getMolecule();
    const points = Array.from({ length: molecule.getAllAtoms() }, (_, i) => molecule.getAtomicNo(i)).filter(isPoint).length;
    place.setAttribute("aria-label", `Structure editor: ${molecule.getAllAtoms() - points} atoms, ${points} points. `
      + "The text field does the same by keyboard.");
  }

  function show() { // a molfile from the server
    const molecule = props.value ? Molecule.fromMolfile(props.value) : new Molecule(32, 32);
    for (let i = 0; i < molecule.getAllAtoms(); i++) if (molecule.getAtomicNo(i) === 0) molecule.setAtomicNo(i, POINT);
    const drawn = molecule.getIDCode() === editor.getMolecule().getIDCode();
    if (!drawn && performance.now() - last > PAUSE) editor.setMolecule(molecule); // else keep the places of atoms
    describe();
  }

  function send() { // the drawing to the server
    last = performance.now();
    props.value = editor.getMolecule().toMolfile();
    trigger("drawn");
    describe();
  }

  function nearest(molecule, x, y, least) {
    let found = -1;
    for (let i = 0; i < molecule.getAllAtoms(); i++) {
      const distance = Math.hypot(molecule.getAtomX(i) - x, molecule.getAtomY(i) - y);
      if (distance < least) [found, least] = [i, distance];
    }
    return found;
  }

  function addPoint(x, y, reach) { // a bond from the atom at a place to a new point
    const molecule = editor.getMolecule();
    const atom = nearest(molecule, x, y, reach);
    if (atom < 0) return;
    const [x0, y0] = [molecule.getAtomX(atom), molecule.getAtomY(atom)];
    let dx = 0, dy = 0;
    for (let i = 0; i < molecule.getAllConnAtoms(atom); i++) {
      const other = molecule.getConnAtom(atom, i);
      [dx, dy] = [dx + x0 - molecule.getAtomX(other), dy + y0 - molecule.getAtomY(other)];
    }
    if (molecule.getAllConnAtoms(atom) === 1) [dx, dy] = [dx / 2 - dy * 0.866, dx * 0.866 + dy / 2]; // a bond of 120 degrees
    const length = molecule.getAverageBondLength() || 24;
    const scale = length / (Math.hypot(dx, dy) || 1);
    const point = molecule.addAtom(POINT);
    molecule.setAtomX(point, x0 + (dx || dy ? dx * scale : length));
    molecule.setAtomY(point, y0 + dy * scale);
    molecule.addBond(atom, point);
    editor.moleculeChanged();
    send();
  }

  const active = () => button.getAttribute("aria-pressed") === "true";
  button.addEventListener("click", () => button.setAttribute("aria-pressed", String(!active())));
  for (const name of ["pointerdown", "pointerup", "click"]) place.addEventListener(name, event => {
    if (!active()) return;
    if (event.composedPath()[0] !== canvas) return button.setAttribute("aria-pressed", "false"); // another tool is chosen
    event.stopPropagation();
    const box = canvas.getBoundingClientRect(), scale = canvas.width / box.width;
    if (name === "click") addPoint((event.clientX - box.left) * scale, (event.clientY - box.top) * scale, REACH * scale);
  }, true);
  editor.setOnChangeListener(event => { if (event.type === "molecule" && event.isUserEvent) send(); });
  watch("value", show);
  show();
}
