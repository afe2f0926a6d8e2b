// How search results are ordered: as Sphinx does, and pages with more of the words in the title first.
var Scorer = {
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
  score: ([_docname, title, _anchor, _descr, score]) => {
    const query = new URLSearchParams(window.location.search).get("q") || "";
    const words = new Set(query.toLowerCase().match(/[\p{L}\p{N}_]+/gu));
    const inTitle = new Set(title.toLowerCase().match(/[\p{L}\p{N}_]+/gu));
    return score + [...words].filter((word) => inTitle.has(word)).length;
  },
};
