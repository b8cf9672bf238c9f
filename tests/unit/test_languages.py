# ruff: noqa: RUF001 - letters of other alphabets
"""Which language a text is in, and that names, figures and single words make none foreign."""

from __future__ import annotations

import pytest

from imem.kg.similarity.languages import LANGUAGES, language_of, named

TEXTS = {
    "zh": ["半导体需求正在增长", "TSMC 的利润率下降", "利率"],
    "ja": ["半導体の需要が増えている", "トヨタの利益", "なぜTSMCの利益率は下がったのか"],
    "ko": ["한국은행이 기준금리를 인상했다", "TSMC 마진이 왜 떨어졌나"],
    "th": ["ธนาคารกลางขึ้นอัตราดอกเบี้ย"],
    "ar": ["ارتفعت أسعار النفط"],
    "fa": ["چرا قیمت نفت افزایش یافت"],
    "ru": ["Российские банки повысили ставки"],
    "uk": ["Чому зросли ціни на нафту"],
    "el": ["Η κεντρική τράπεζα αύξησε τα επιτόκια"],
    "he": ["הבנק העלה את הריבית"],
    "hi": ["केंद्रीय बैंक ने ब्याज दरें बढ़ाईं"],
    "de": ["Warum steigen die Zinsen?", "Die Nachfrage nach Chips wird im Jahr 2027 nicht sinken."],
    "fr": ["Pourquoi les marges ont baissé ?", "La banque a relevé ses prévisions pour les résultats de cette année."],
    "es": ["¿Por qué cayeron los márgenes de la empresa?", "El banco central subió los tipos para el año."],
    "it": ["Perché i margini sono scesi?", "La banca ha alzato le stime per il 2027 e non sono basse."],
    "pt": ["Por que as margens da empresa não caíram?"],
    "nl": ["Waarom stijgt de rente niet?"],
    "pl": ["Dlaczego marże są niższe?"],
    "tr": ["Faizler neden yükseldi ve bu nasıl oldu?"],
    "vi": ["Ngân hàng trung ương đã tăng lãi suất"],
    "en": ["Why did the margins fall?", "The company said that 半導体 demand is strong in Japan.",
           "What is the plan of the bank?"],
    "other": ["ბანკმა განაკვეთი გაზარდა", "ব্যাংক সুদের হার বাড়িয়েছে"],
    None: ["", "4.2 %", "Société Générale", "margins", "Deutsche Bank AG", "MU", "🚀", "Nestlé", "Müller",
           "Banco do Brasil", "non-GAAP EPS per share", "Per capita GDP non-farm payrolls",
           "Los Angeles and Las Vegas hotels",
           "del Monte vs Del Taco", "De Beers, Van Eck, De Nora", "la Caixa and la Banque", "Comment on Des Moines",
           "SE and NA regions", "İş Bankası", "β"],
}  # fmt: skip


@pytest.mark.parametrize(("code", "text"), [(code, text) for code, texts in TEXTS.items() for text in texts])
def test_the_language_of_a_text(code: str | None, text: str) -> None:
    assert language_of(text) == code


def test_every_language_has_a_name() -> None:
    assert named(["de", "zh", "de"]) == "Chinese and German"
    assert named(code for code in TEXTS if code is not None)
    assert named(["th"]) == LANGUAGES["th"]
