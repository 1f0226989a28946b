// Copying of commands, and texts of charts that appear at once, also on touch screens.
(function () {
  document.querySelectorAll('.cmd').forEach(function (box) {
    var button = box.querySelector('button'), code = box.querySelector('code');
    button.hidden = false;
    button.addEventListener('click', function () {
      var done = function () {
        button.textContent = 'Copied';
        setTimeout(function () { button.textContent = 'Copy'; }, 1500);
      };
      var select = function () {
        var range = document.createRange();
        range.selectNodeContents(code);
        getSelection().removeAllRanges();
        getSelection().addRange(range);
        if (document.execCommand('copy')) done();
      };
      if (navigator.clipboard) navigator.clipboard.writeText(code.textContent).then(done, select);
      else select();
    });
  });
  var tip = document.getElementById('tip');
  document.querySelectorAll('svg title').forEach(function (title) {
    title.parentNode.setAttribute('data-tip', title.textContent);
    title.parentNode.setAttribute('aria-label', title.textContent);
    title.remove();
  });
  function show(event) {
    var mark = event.target.closest ? event.target.closest('[data-tip]') : null;
    tip.hidden = !mark;
    if (!mark) return;
    tip.textContent = mark.getAttribute('data-tip');
    var width = tip.offsetWidth, height = tip.offsetHeight;
    tip.style.left = Math.max(8, Math.min(event.clientX + 12, innerWidth - width - 8)) + 'px';
    tip.style.top = Math.max(8, event.clientY - height - 14) + 'px';
  }
  document.addEventListener('pointermove', show);
  document.addEventListener('pointerdown', show);
  document.addEventListener('scroll', function () { tip.hidden = true; }, true);
})();
