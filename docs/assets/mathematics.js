// Renders what pymdownx.arithmatex has marked: \(...\) in a line, \[...\] by itself.
document.addEventListener("DOMContentLoaded", () => {
  for (const element of document.querySelectorAll(".arithmatex")) {
    const source = element.textContent.trim();
    const displayMode = source.startsWith("\\[");
    katex.render(source.slice(2, -2), element, { displayMode, throwOnError: false });
  }
});
