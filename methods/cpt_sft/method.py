"""Next token on the documents first, then question-answer pairs (EvoWiki 4.4)."""

from upkeep.cell import Course, Method, Training
from upkeep.cell.finetuning import Stage, finetune
from upkeep.cell.samples import Material


class CptSft(Method):
    def train(self, training: Training) -> Course:
        p = self.parameters
        return finetune(
            training, self.tools, Stage(Material.documents, p | p["cpt"]), Stage(Material.pairs, p | p["sft"])
        )
