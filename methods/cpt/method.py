"""Continual pre-training: the next token of the documents. It makes a new model; other methods ask it."""

from upkeep.cell import Course, Method, Training
from upkeep.cell.finetuning import Stage, finetune
from upkeep.cell.samples import Material


class Cpt(Method):
    def train(self, training: Training) -> Course:
        return finetune(training, self.tools, Stage(Material.documents, self.parameters))
