"""Question-answer pairs first, then next token on the documents (EvoWiki 4.4, after Jiang et al. 2024)."""

from upkeep.cell import Course, Method, Training
from upkeep.cell.finetuning import Stage, finetune
from upkeep.cell.samples import Material


class SftCpt(Method):
    def train(self, training: Training) -> Course:
        p = self.parameters
        return finetune(
            training, self.tools, Stage(Material.pairs, p | p["sft"]), Stage(Material.documents, p | p["cpt"])
        )
